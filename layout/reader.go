package layout

// Reader carries out several reads at once for one goroutine, which handles each end
// itself: no other goroutine has to be woken. It reads the files that it was made for
// (NewReader), which must stay open until it is closed. Not safe for concurrent use.
//
// Buffers of a read that was started belong to the reader until Wait has returned its
// tag, and so does the list of them: neither is to be changed, and the bytes may be
// written to at any time.
type Reader interface {
	// Room is how many reads more may be started that will be under way beside those
	// that are; Wait carries out what is started beyond that one after another. At
	// least 1 while nothing is under way. It changes with what the reader finds out.
	Room() int
	// Start queues a read of several buffers, as of VectorFile.ReadVAt. It does not
	// wait. All errors are Wait's to return, also that the file is not one of the
	// reader's.
	Start(f File, tag int, bufs [][]byte, off int64)
	// Wait begins what was started, waits until one of the reads has ended, in
	// whatever order, and returns what ReadVAt would have. It must not be called
	// when nothing is under way.
	Wait() (tag, n int, err error)
	// Close ends the reader once all of its reads have ended, which it forgets. A
	// second Close does nothing.
	Close() error
}

// MultiFile is a File that a Reader can read.
type MultiFile interface {
	File
	// NewReader makes a Reader of the file and of others, or returns nil where one
	// reader cannot serve all of them. The caller closes it.
	NewReader(others ...File) Reader
}

// LeastCarried is from how many bytes on reads of a file with a Reader are better
// carried out by it. Smaller ones are over sooner by ReadAt, a worker each, since
// those who wait for several are all late when one of them is. Files tell by a method of
// that name; 0: all.
func LeastCarried(f File) int64 {
	if l, ok := f.(interface{ LeastCarried() int64 }); ok {
		return l.LeastCarried()
	}
	return 0
}

// NewReader makes a Reader that serves all of the files, one or more; nil if there is
// none, so that they are to be read by ReadAt or ReadV.
func NewReader(files ...File) Reader {
	if m, ok := files[0].(MultiFile); ok {
		return m.NewReader(files[1:]...)
	}
	return nil
}

// NewDeepReader is NewReader for so many reads under way at once: nil also where there is
// no room for them.
func NewDeepReader(reads int, files ...File) Reader {
	r := NewReader(files...)
	if r != nil && r.Room() < reads {
		_ = r.Close() // nothing was read
		return nil
	}
	return r
}
