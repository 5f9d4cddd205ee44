package readertest

import "outrider/layout"

// Through is the file with each of its reads carried out by a Reader of its own.
func Through(f layout.File) layout.File { return through{f} }

type through struct{ layout.File }

var _ layout.VectorFile = through{}

// ReadAt reads into one buffer.
func (t through) ReadAt(p []byte, off int64) (int, error) { return t.ReadVAt([][]byte{p}, off) }

// ReadVAt starts a read, and waits for it.
func (t through) ReadVAt(bufs [][]byte, off int64) (int, error) {
	r := layout.NewReader(t.File)
	defer r.Close()
	r.Start(t.File, 0, bufs, off)
	_, n, err := r.Wait()
	return n, err
}

// Engine is that of the file below.
func (t through) Engine() string { return layout.Engine(t.File) }

// FallbackReason is that of the file below.
func (t through) FallbackReason() string { return layout.FallbackReason(t.File) }
