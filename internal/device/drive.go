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
	// Several gives the drive's files a layout.Reader, whose reads take the same time
	// and have the same effects.
	Several bool
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
		speed float64 // bytes a second
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
	d.mu.speed = m.BytesPerSecond
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

// SetSpeed changes the transfer rate, in bytes a second, of the reads from now on.
func (d *Drive) SetSpeed(bytesPerSecond float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.speed = bytesPerSecond
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
func (d *Drive) File(f layout.File) layout.File {
	on := &file{File: f, drive: d}
	if d.model.Several {
		return severalFile{on}
	}
	return on
}

type file struct {
	layout.File
	drive *Drive
}

var _ layout.VectorFile = (*file)(nil)

// ReadAt reads from the file below in the time, and with the faults, of the drive.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	e, err := f.drive.serve(off, len(p))
	if err != nil {
		return 0, err
	}
	return e.apply(func(short int) (int, error) { return f.File.ReadAt(p[:len(p)-short], off) }, p)
}

// ReadVAt is one read of the drive, of the bytes of all buffers.
func (f *file) ReadVAt(bufs [][]byte, off int64) (int, error) {
	total := 0
	for _, p := range bufs {
		total += len(p)
	}
	e, err := f.drive.serve(off, total)
	if err != nil {
		return 0, err
	}
	return e.apply(func(short int) (int, error) { return layout.ReadV(f.File, cut(bufs, total-short), off) }, bufs...)
}

// FallbackReason is that of the file below.
func (f *file) FallbackReason() string { return layout.FallbackReason(f.File) }

// Engine is that of the file below.
func (f *file) Engine() string { return layout.Engine(f.File) }

// cut is the first n bytes of bufs.
func cut(bufs [][]byte, n int) [][]byte {
	var out [][]byte
	for _, p := range bufs {
		p = p[:min(len(p), n)]
		n -= len(p)
		out = append(out, p)
	}
	return out
}

// apply reads with the effect: read fills bufs, but for the last short bytes.
func (e Effect) apply(read func(short int) (int, error), bufs ...[]byte) (int, error) {
	total := 0
	for _, p := range bufs {
		total += len(p)
	}
	switch {
	case e.Panic:
		panic("device: panic asked for by the rule")
	case e.Err != nil:
		return 0, e.Err
	case e.Silent:
		return total, nil
	case e.Short > 0:
		n, err := read(min(e.Short, total))
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	n, err := read(0)
	if e.Flip && n > 0 {
		for _, p := range bufs {
			if len(p) > 0 {
				p[0] = ^p[0]
				break
			}
		}
	}
	return n, err
}

// serve takes a read's time and returns its effect.
func (d *Drive) serve(off int64, n int) (Effect, error) {
	op, err := d.enter(off, n)
	if err != nil {
		return Effect{}, err
	}
	defer d.leave()
	if err := d.pass(n); err != nil {
		return Effect{}, err
	}
	var e Effect
	if d.model.Rule != nil {
		e = d.model.Rule(op)
	}
	if e.Delay > 0 {
		if err := d.sleep(e.Delay); err != nil {
			return Effect{}, err
		}
	}
	return e, nil
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.speed <= 0 {
		return 0
	}
	took := time.Duration(float64(n) / d.mu.speed * float64(time.Second))
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
