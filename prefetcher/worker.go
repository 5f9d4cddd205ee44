package prefetcher

import (
	"errors"
	"fmt"
	"slices"

	"outrider/layout"
)

// worker is one of a lane's. Where the lane's files have a Reader it carries several
// requests at once, hands the kernel all of them with one call, and handles each end
// itself; else one. It alone touches its fields, but for coming.
type worker struct {
	lane    *lane
	reader  layout.Reader // nil: requests are carried out one at a time
	room    int           // requests that may be begun beside those it carries
	ops     []*op         // carried, by tag; nil where there is none
	carried int
	done    []*op // that are over, for the lane to use again

	coming bool // it looks for work before it waits: see lane.coming
	leaves bool // there is work that it has left to others
}

// work is one worker of a lane. It ends when the prefetcher is closed, and its
// requests have ended.
func (p *Prefetcher) work(l *lane) error {
	w := &worker{lane: l}
	for {
		w.measure()
		j, ok := p.next(w)
		if !ok {
			return w.end()
		}
		switch j.kind {
		case jobRead:
			p.begin(w, j.o)
		case jobWait:
			p.await(w)
		case jobAgain:
			p.conclude(l, j.o, j.o.failed)
			w.done = append(w.done, j.o)
		case jobChore:
			p.do(j.chore)
		default:
			p.open(j.f, j.class)
		}
	}
}

// measure finds out how much more the worker may carry.
func (w *worker) measure() {
	if w.reader == nil && w.lane.several {
		w.reader = w.lane.newReader()
	}
	if w.reader == nil {
		w.room = 1
		return
	}
	w.room = w.reader.Room()
}

func (w *worker) end() error {
	if w.reader == nil {
		return nil
	}
	return w.reader.Close()
}

// carries reports whether the lane's workers are to carry several requests: there is a
// Reader, and the source's largest records are worth it.
func (p *Prefetcher) carries(l *lane) bool {
	if slices.Max(p.slotBytes) < layout.LeastCarried(l.File) {
		return false
	}
	r := l.newReader()
	return r != nil && r.Close() == nil
}

// newReader makes a reader of the lane's files, nil if there is none for all of them.
func (l *lane) newReader() (r layout.Reader) {
	files := []layout.File{l.File}
	if l.Copies != nil {
		files = append(files, l.Copies)
	}
	if safely(func() { r = layout.NewReader(files...) }) != nil {
		return nil
	}
	return r
}

// begin asks for what the op wants: it is carried from then on, or done.
func (p *Prefetcher) begin(w *worker, o *op) {
	p.prepare(o)
	file, _ := w.lane.file(o.spot)
	if w.reader == nil {
		n, err := readVAt(file, o.bufs, o.offset)
		p.ended(w, o, n, err)
		return
	}
	tag := w.carry(o)
	if err := safely(func() { w.reader.Start(file, tag, o.bufs, o.offset) }); err != nil {
		p.lostReader(w, err)
	}
}

// carry keeps the op, and returns its tag.
func (w *worker) carry(o *op) int {
	w.carried++
	for tag, x := range w.ops {
		if x == nil {
			w.ops[tag] = o
			return tag
		}
	}
	w.ops = append(w.ops, o)
	return len(w.ops) - 1
}

// await waits until one of the worker's requests has ended, and goes on with it.
func (p *Prefetcher) await(w *worker) {
	var tag, n int
	var answer error
	err := safely(func() { tag, n, answer = w.reader.Wait() })
	if err == nil && (tag < 0 || tag >= len(w.ops) || w.ops[tag] == nil) {
		err = fmt.Errorf("prefetcher: the reader answered what it was not asked: %w", answer)
	}
	if err != nil {
		p.lostReader(w, err)
		return
	}
	o := w.ops[tag]
	w.ops[tag] = nil
	w.carried--
	p.ended(w, o, n, answer)
}

// lostReader gives up a reader of somebody's making that has failed as such. Once it is
// closed nothing is written into its buffers any more, and what it had is read again.
func (p *Prefetcher) lostReader(w *worker, err error) {
	err = errors.Join(err, w.reader.Close())
	w.reader = nil
	for tag, o := range w.ops {
		if o != nil {
			w.ops[tag] = nil
			w.carried--
			p.ended(w, o, 0, err)
		}
	}
}

// ended takes the answer to an op. A second try may take long, and so is not for a
// worker that others wait for.
func (p *Prefetcher) ended(w *worker, o *op, n int, err error) {
	err = p.judge(o, n, err)
	if err != nil && w.carried > 0 && p.handOver(w.lane, o, err) {
		return
	}
	p.conclude(w.lane, o, err)
	w.done = append(w.done, o)
}

// handOver leaves the second try of an op to a worker that carries nothing. There is
// one, or will be soon: no more requests are under way than there are workers, and the
// caller has two of them.
func (p *Prefetcher) handOver(l *lane, o *op, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return false
	}
	o.failed = err
	l.again = append(l.again, o)
	return true
}

// conclude ends an op whose request has ended, after second tries if it failed, and
// settles the flights that it was the last one of.
func (p *Prefetcher) conclude(l *lane, o *op, err error) {
	p.tryAgain(o, err)
	p.landed(l, o)
	for i, b := range o.blocks {
		p.endBlock(b, o.errs[i])
	}
}
