package layout

import (
	"encoding/binary"
	"fmt"
	"math"
)

const hashName = "hash" // of a layer's table in a store's file

// HashTable says which experts a hash-routed layer uses for each token: certain,
// and known as soon as the token is. Immutable and safe for concurrent use.
type HashTable struct {
	topK    int
	experts []int32
}

// Tokens is the number of tokens in the table, most often the size of the vocabulary.
func (h *HashTable) Tokens() int { return len(h.experts) / h.topK }

// Experts are the experts of a token, top-k numbers in the table's order, nil for a
// token that the table does not have. The slice is shared: do not change it.
func (h *HashTable) Experts(token int32) []int32 {
	if token < 0 || int(token) >= h.Tokens() {
		return nil
	}
	return h.experts[int(token)*h.topK:][:h.topK:h.topK]
}

// Table reads the table of a hash-routed layer from 0 to Layers-1 into new memory;
// nil, and no error, for a layer whose router chooses by scores. Errors are those
// of Load, and an ErrCheckpoint for a number of an expert that the model does not have.
func (r *Routers) Table(layer int) (*HashTable, error) {
	if err := r.checkLayer(layer); err != nil {
		return nil, err
	}
	t := &r.Layers[layer].Hash
	if t.Type == "" {
		return nil, nil
	}
	raw, err := r.read(t)
	if err != nil {
		return nil, err
	}
	h := &HashTable{topK: r.shape.TopK, experts: make([]int32, r.Tokens*r.shape.TopK)}
	for i := range h.experts {
		e := wholeNumber(t.Type, raw, i)
		if e < 0 || e >= int64(r.shape.Experts) {
			return nil, fmt.Errorf("layout: load router: %w: %s of %s gives token %d expert %d of %d: get the file again",
				ErrCheckpoint, t.Source, r.files[t.File].Path, i/h.topK, e, r.shape.Experts)
		}
		h.experts[i] = int32(e)
	}
	return h, nil
}

// wholeNumbers reports whether a type is one of a hash table.
func wholeNumbers(typ string) bool { return typ == "I32" || typ == "I64" }

// wholeNumber is number i of a hash table's bytes.
func wholeNumber(typ string, raw []byte, i int) int64 {
	if typ == "I64" {
		return int64(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	return int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
}

// storedType is what a store keeps a tensor as.
func (t sized) storedType() string {
	if t.name == hashName {
		return "I32"
	}
	return "F32"
}

// narrow turns int64 numbers into the int32 that a store keeps.
func narrow(t sized, raw []byte) ([]byte, error) {
	data := make([]byte, 0, 4*t.count)
	for i := range int(t.count) {
		n := wholeNumber(t.Type, raw, i)
		if n < math.MinInt32 || n > math.MaxInt32 {
			return nil, fmt.Errorf("%w: number %d of router tensor %s is %d, which is no expert", ErrCheckpoint, i, t.Source, n)
		}
		data = binary.LittleEndian.AppendUint32(data, uint32(n))
	}
	return data, nil
}
