package mmaparm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"outrider/internal/pagecache"
	"outrider/layout"
)

// Arm is a running arm. Its methods may be called from several goroutines; Play
// plays one after the other.
type Arm struct {
	child *child
	group *group // nil: none
	limit Limit
	found Conditions

	once     sync.Once
	closeErr error

	mu     sync.Mutex // held while talking to the child; guards broken
	broken error      // why the child cannot be talked to any more
}

// Start starts the child and maps the files. The child is exe with args, which
// must call Serve on its standard input and output. ctx limits the start only;
// the child lives until Close.
//
// Files are dropped from the page cache first (Conditions tells what stayed). Where no
// limit can be set the arm runs without, and Limit says why. Errors: a source
// that names what it has not, a child that cannot be started or does not answer
// as Serve does, files that cannot be mapped. Nothing is left after an error.
func Start(ctx context.Context, exe string, args []string, o Options) (*Arm, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	open, err := openingOf(o)
	if err != nil {
		return nil, err
	}
	a := &Arm{found: conditionsOf(open.Files)}
	if a.child, err = startChild(exe, args, o.Threads); err != nil {
		return nil, err
	}
	if err := a.prepare(ctx, o, open); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.setLimit(o, open)
	return a, nil
}

// openingOf describes the files for the child, which may run elsewhere.
func openingOf(o Options) (*openRequest, error) {
	open := &openRequest{Threads: o.Threads}
	for _, lane := range o.Source.Lanes() {
		path, err := filepath.Abs(lane.Path)
		if err != nil {
			return nil, fmt.Errorf("mmaparm: %w", err)
		}
		open.Files = append(open.Files, openFile{Path: path, Size: lane.File.Size()})
	}
	return open, nil
}

// conditionsOf drops the files and looks around.
func conditionsOf(files []openFile) Conditions {
	c := Conditions{ReadAheadBytes: -1}
	for _, f := range files {
		err := pagecache.Drop(f.Path)
		if err == nil {
			var cached, total int64
			cached, total, err = pagecache.Cached(f.Path)
			c.CachedPages += cached
			c.TotalPages += total
		}
		if err != nil && c.Reason == "" {
			c.Reason = err.Error()
		}
		c.ReadAheadBytes = max(c.ReadAheadBytes, readAhead(f.Path))
	}
	return c
}

// prepare has the child map the files and tells it where the experts lie.
func (a *Arm) prepare(ctx context.Context, o Options, open *openRequest) error {
	if _, err := a.ask(ctx, request{Open: open}); err != nil {
		return err
	}
	shape := o.Source.Shape()
	var p layout.Placement
	for l := range shape.Layers {
		part, numbers := &placeRequest{Layer: l}, 0
		for e := range shape.Experts {
			id := layout.ExpertID{Layer: int32(l), Index: int32(e)}
			if err := o.Source.Locate(id, &p); err != nil {
				return fmt.Errorf("mmaparm: %w", err)
			}
			extents := make([]extent, 0, len(p.Reads))
			for _, r := range p.Reads {
				if r.Need > 0 {
					extents = append(extents, extent{int64(r.Lane), r.Offset, r.Need})
				}
			}
			part.Experts = append(part.Experts, extents)
			numbers += 3*len(extents) + 1
			if e+1 < shape.Experts && numbers < batchNumbers {
				continue
			}
			if _, err := a.ask(ctx, request{Place: part}); err != nil {
				return err
			}
			part, numbers = &placeRequest{Layer: l}, 0
		}
	}
	return a.warm(ctx)
}

// warm has the child play uses of no experts, so that its heap has grown before
// it is charged to the group.
func (a *Arm) warm(ctx context.Context) error {
	const rounds = 16
	uses := make([]Use, batchNumbers/useNumbers)
	for range rounds {
		if _, err := a.ask(ctx, request{Play: uses}); err != nil {
			return err
		}
	}
	return nil
}

// heapReserve is for what the child's heap and the kernel's bookkeeping may grow
// after the child has entered its group. Measured, page tables included: 0.1 MB in
// plays of some hundred uses, up to 1.4 MB in one of 20,000.
const heapReserve = 1 << 20

// setLimit comes last, so that what the child has allocated until now is not
// charged to its group.
func (a *Arm) setLimit(o Options, open *openRequest) {
	a.limit = Limit{BudgetBytes: o.BudgetBytes}
	if o.BudgetBytes == 0 {
		a.limit.Reason = "no budget was given"
		return
	}
	var mapped int64
	for _, f := range open.Files {
		mapped += f.Size
	}
	overhead := heapReserve + mapped/512 // a page table entry of 8 bytes for each page of 4096
	bytes := o.BudgetBytes + overhead
	g, err := newGroup()
	if err == nil {
		if err = g.limit(bytes); err == nil {
			err = g.enter(a.child.pid())
		}
		if err != nil {
			err = errors.Join(err, g.remove())
		}
	}
	if err != nil {
		a.limit.Reason = fmt.Sprintf("no memory cgroup can be set up: %v", err)
		return
	}
	a.group = g
	a.limit.Bytes, a.limit.OverheadBytes, a.limit.Group = bytes, overhead, g.dir
}

// Limit tells how the arm's memory is bounded.
func (a *Arm) Limit() Limit { return a.limit }

// Conditions tells what the arm found when it started.
func (a *Arm) Conditions() Conditions { return a.found }

// PeakBytes is the most that has been charged to the arm's cgroup; false where
// there is none or it does not tell. Ask before Close.
func (a *Arm) PeakBytes() (int64, bool) {
	if a.group == nil {
		return 0, false
	}
	n, err := a.group.peak()
	return n, err == nil
}

// Play has the child carry out the uses, in order, and returns their sum. A
// use of what the source has not is an error before any of its message is played,
// and a page that cannot be read is one that names file and offset; the arm goes
// on after both. When ctx ends the child is killed and Play returns the
// context's cause: that, and a child that ended by itself (ErrOutOfMemory, if the
// kernel killed it), ends the arm, and every later Play returns the same error.
func (a *Arm) Play(ctx context.Context, uses []Use) (Result, error) {
	var sum Result
	err := batches(uses, func(part []Use) error {
		rep, err := a.ask(ctx, request{Play: part})
		if err == nil {
			sum.Add(*rep.Result)
		}
		return err
	})
	return sum, err
}

// ask sends a request and waits for the reply.
func (a *Arm) ask(ctx context.Context, req request) (reply, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		return reply{}, a.broken
	}
	if ctx.Err() != nil {
		return reply{}, fmt.Errorf("mmaparm: %w", context.Cause(ctx))
	}
	stop := context.AfterFunc(ctx, a.child.kill)
	rep, err := a.child.ask(req)
	if !stop() { // killed, be it after its reply
		err = fmt.Errorf("mmaparm: %w", context.Cause(ctx))
	} else if err != nil {
		err = a.blame(a.child.explain(err))
	}
	if err != nil {
		a.broken = err
		return reply{}, err
	}
	if rep.Error != "" {
		return reply{}, errors.New(rep.Error)
	}
	if req.Play != nil && rep.Result == nil {
		a.broken = errors.New("mmaparm: the child plays without a result: is it another version?")
		return reply{}, a.broken
	}
	return rep, nil
}

// blame finds out whether the kernel killed the child for want of memory.
func (a *Arm) blame(err error) error {
	if a.group == nil || !a.group.outOfMemory() {
		return err
	}
	return fmt.Errorf("mmaparm: %w of %d bytes, while it reads %d bytes around a fault: take a larger budget or a smaller read_ahead_kb (%w)",
		ErrOutOfMemory, a.limit.Bytes, a.found.ReadAheadBytes, err)
}

var errClosed = errors.New("mmaparm: the arm is closed")

// closeGrace is how long a child may take to end after its input has.
const closeGrace = 2 * time.Second

// Close ends the child, waits for it and removes its cgroup. A Play under way
// ends with an error. Closing twice is harmless and returns the same.
//
// Pages that the arm has brought stay in the page cache: drop them before an arm
// that must not find them (pagecache.Drop).
func (a *Arm) Close() error {
	a.once.Do(func() {
		if !a.mu.TryLock() { // a Play is under way: it ends with the child
			a.child.kill()
			a.mu.Lock()
		}
		if a.broken == nil {
			a.broken = errClosed
		}
		a.mu.Unlock()
		a.closeErr = a.child.close(closeGrace)
		if a.group != nil {
			a.closeErr = errors.Join(a.closeErr, a.group.remove())
		}
	})
	return a.closeErr
}

var _ io.Closer = (*Arm)(nil)
