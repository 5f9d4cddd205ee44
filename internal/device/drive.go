package device

import (
	"errors"
	"io"
	"sync"
	"time"

	"outrider/layout"
)

// ErrRemoved is the error of every read of a drive that was removed.
var ErrRemoved = errors.New("device: drive removed")

// Model is what a drive can do. The zero value is a drive that takes no time.
type Model struct {
	BytesPerSecond float64       // transfer rate of the whole drive; 0: no limit
	Latency        time.Duration // of each read; overlaps between reads in the queue
	Depth          int           // reads that the drive works on at once; 0: no limit
	// Rule is asked once for each read, from the goroutine that reads and
	// possibly from several at once; nil: no faults.
	Rule Rule
}

// Op is one read of a drive.
type Op struct {
	Seq    int64 // reads of the drive before this one, in order of arrival
	Offset int64 // in the file
	Bytes  int
}

// Effect is what happens to a read besides taking its time.
type Effect struct {
	Delay time.Duration // a stall after the transfer
	Err   error         // fail with this, and touch nothing
	Short int           // return that many bytes less than asked, with io.ErrUnexpectedEOF
	// Silent claims success without having touched the buffer, as some
	// file systems do.
	Silent bool
	Flip   bool // invert the first byte: damage that only a checksum sees
	Panic  bool // panic in the middle of the read
}

// Rule decides the effect on a read.
type Rule func(Op) Effect

// Drive is a modelled drive. Safe for concurrent use.
type Drive struct {
	model  Model
	places chan struct{} // nil: no limit
	gone   chan struct{} // closed by Remove

	mu struct {
		sync.Mutex
		seq   int64
		bytes int64
		free  time.Time // when the transfers begun so far end
		open  int
		peak  int
		gone  bool
	}
}

// New makes a drive.
func New(m Model) *Drive {
	d := &Drive{model: m, gone: make(chan struct{})}
	if m.Depth > 0 {
		d.places = make(chan struct{}, m.Depth)
	}
	return d
}

// Remove makes all reads fail with ErrRemoved, from now on and those under way.
// A second Remove does nothing.
func (d *Drive) Remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.mu.gone {
		d.mu.gone = true
		close(d.gone)
	}
}

// Stats counts what a drive did.
type Stats struct {
	Reads int64 // begun, with those that failed
	Bytes int64 // asked for
	Peak  int   // most reads at the drive at once, waiting ones included
}

// Stats is a snapshot.
func (d *Drive) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Stats{Reads: d.mu.seq, Bytes: d.mu.bytes, Peak: d.mu.peak}
}

// File puts a file on the drive. Closing it closes f.
func (d *Drive) File(f layout.File) layout.File { return &file{File: f, drive: d} }

type file struct {
	layout.File
	drive *Drive
}

// ReadAt reads from the file below in the time, and with the faults, of the drive.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	d := f.drive
	op, err := d.enter(off, len(p))
	if err != nil {
		return 0, err
	}
	defer d.leave()
	if err := d.pass(len(p)); err != nil {
		return 0, err
	}
	var e Effect
	if d.model.Rule != nil {
		e = d.model.Rule(op)
	}
	if e.Delay > 0 {
		if err := d.sleep(e.Delay); err != nil {
			return 0, err
		}
	}
	return f.transfer(p, off, e)
}

func (f *file) transfer(p []byte, off int64, e Effect) (int, error) {
	switch {
	case e.Panic:
		panic("device: panic asked for by the rule")
	case e.Err != nil:
		return 0, e.Err
	case e.Silent:
		return len(p), nil
	case e.Short > 0:
		n, err := f.File.ReadAt(p[:max(len(p)-e.Short, 0)], off)
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	n, err := f.File.ReadAt(p, off)
	if e.Flip && n > 0 {
		p[0] = ^p[0]
	}
	return n, err
}

func (d *Drive) enter(off int64, n int) (Op, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	op := Op{Seq: d.mu.seq, Offset: off, Bytes: n}
	d.mu.seq++
	d.mu.bytes += int64(n)
	if d.mu.gone {
		return op, ErrRemoved
	}
	d.mu.open++
	d.mu.peak = max(d.mu.peak, d.mu.open)
	return op, nil
}

func (d *Drive) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.open--
}

// pass waits for a place in the queue, the latency and the transfer of n bytes.
func (d *Drive) pass(n int) error {
	if d.places != nil {
		select {
		case d.places <- struct{}{}:
			defer func() { <-d.places }()
		case <-d.gone:
			return ErrRemoved
		}
	}
	if d.model.Latency > 0 {
		if err := d.sleep(d.model.Latency); err != nil {
			return err
		}
	}
	if wait := d.book(n); wait > 0 {
		return d.sleep(wait)
	}
	return nil
}

// book puts a transfer behind those begun so far and tells how long until it ends.
func (d *Drive) book(n int) time.Duration {
	if d.model.BytesPerSecond <= 0 {
		return 0
	}
	took := time.Duration(float64(n) / d.model.BytesPerSecond * float64(time.Second))
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.mu.free.Before(now) {
		d.mu.free = now
	}
	d.mu.free = d.mu.free.Add(took)
	return d.mu.free.Sub(now)
}

func (d *Drive) sleep(t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-d.gone:
		return ErrRemoved
	}
}
