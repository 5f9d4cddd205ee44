package runtime

import "outrider/layout"

// Tensor is one projection of an expert, as the checkpoint stores it.
type Tensor struct {
	Name string  // "gate", "up", "down", …
	Type string  // the checkpoint's word: "Q8_0", "F32" …
	Dims []int64 // fastest first: [columns, rows]; shared, do not change
	At   int64   // where Data begins in the expert's slot, see Runtime.Stack
	// Data holds the tensor's bytes. It lies in the expert's slot: it is valid
	// until the expert or its use is released and must not be written.
	Data []byte
}

// Expert is read-only access to the weights of one expert of a use. It ends
// with Release or with the use's Release, whichever comes first; afterwards
// Projection finds nothing. Used from one goroutine, except that several
// goroutines may call Projection while none releases.
type Expert struct {
	u   *use
	gen uint32
	pos int32
}

// Index is the expert's number in its layer.
func (e Expert) Index() int { return int(e.u.held[e.pos].index) }

// ID names the expert.
func (e Expert) ID() layout.ExpertID {
	return layout.ExpertID{Layer: int32(e.u.layer), Index: e.u.held[e.pos].index}
}

// Projection returns the projection of that name, and false if the model has
// none or the expert was released.
func (e Expert) Projection(name string) (Tensor, bool) {
	if !e.valid() {
		return Tensor{}, false
	}
	for i, p := range e.u.rt.source.Record(e.u.layer) {
		if p.Name == name {
			return e.tensor(i, p), true
		}
	}
	return Tensor{}, false
}

// At returns the projection number i in the order of Runtime.Record, and false
// if there is none or the expert was released.
func (e Expert) At(i int) (Tensor, bool) {
	record := e.u.rt.source.Record(e.u.layer)
	if !e.valid() || i < 0 || i >= len(record) {
		return Tensor{}, false
	}
	return e.tensor(i, record[i]), true
}

func (e Expert) valid() bool {
	if e.u.generation() != e.gen {
		return false
	}
	if e.u.early != nil { // it may be arriving just now
		e.u.mu.Lock()
		defer e.u.mu.Unlock()
	}
	return e.u.held[e.pos].state == stateLent
}

func (e Expert) tensor(i int, p layout.Projection) Tensor {
	lease := &e.u.held[e.pos].lease
	part := lease.Parts()[i]
	return Tensor{Name: p.Name, Type: p.Type, Dims: p.Dims, At: part.At, Data: lease.Bytes()[part.At : part.At+part.Bytes : part.At+part.Bytes]}
}

// Release hands the expert back before its use ends: the memory may go to
// another expert. A pass that uses more experts than the budget holds needs
// it, and goes on reading as experts come back. A second call does nothing.
func (e Expert) Release() {
	if e.u.generation() == e.gen {
		e.u.handBack(e.pos)
	}
}
