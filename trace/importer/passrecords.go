package importer

import (
	"errors"
	"io"
)

// passRecords is a binary log of forward passes: a record a layer, in the order
// of execution. A program that is killed leaves a record or a pass unfinished.
type passRecords struct {
	file *file
	// open makes what reads the records from the file's start; next then reads one
	// into r: io.EOF at the end, io.ErrUnexpectedEOF inside a record.
	open func(src *reader) (next func(r *layerRows) error, err error)

	stop int64 // where the unfinished tail begins; 0 until it was looked for, or where there is none
	torn bool
}

// each calls fn with the records before the unfinished tail.
func (p *passRecords) each(fn func(*layerRows) error) error {
	src, err := p.file.open()
	if err != nil {
		return err
	}
	defer src.Close() // nothing was written
	next, err := p.open(src)
	if err != nil {
		return err
	}
	var r layerRows
	for {
		err := next(&r)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			p.torn = true
			return nil
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case p.stop > 0 && r.at.offset >= p.stop:
			return nil
		}
		if err := fn(&r); err != nil {
			return err
		}
	}
}

// findTail sees whether the last pass is whole: it must reach the last layer
// that any pass has. What is wrong before is left to the next reading.
func (p *passRecords) findTail(in *input) {
	last, deepest, passes := -1, -1, 0
	start, end := int64(0), int64(0)
	err := p.each(func(r *layerRows) error {
		if passes == 0 || r.layer <= last {
			passes++
			start = r.at.offset
		}
		last, end = r.layer, r.at.offset
		deepest = max(deepest, r.layer)
		return nil
	})
	if err != nil {
		return
	}
	switch {
	case last < deepest && passes > 1:
		p.stop = start
		in.note("the file ends inside a pass, as when the program was killed: the pass that begins at byte %d was left out.", start)
	case p.torn:
		in.note("the file ends inside the record after byte %d, as when the program was killed: that record was left out.", end)
	}
}

// cutShort turns the end of a file inside a record into io.ErrUnexpectedEOF.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
