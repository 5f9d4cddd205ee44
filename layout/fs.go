package layout

import (
	"io/fs"
)

// FS is the seam through which this module reads files: the operating system
// (OS), memory (internal/memfs), and faults on purpose (internal/faultfs).
// Names are paths in the operating system's form. Safe for concurrent use.
type FS interface {
	// Open opens a file for reading. With mode Direct it tries to bypass the
	// page cache and proves that this works; where it does not, the file is
	// opened buffered and says so (File.Direct).
	Open(name string, mode Mode) (File, error)
	Stat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.DirEntry, error)
}

// Mode says how a file is read.
type Mode uint8

const (
	Buffered Mode = iota // through the page cache
	Direct               // around it, where the file system allows
)

// File is a file open for reading. ReadAt may be called from several
// goroutines. On a direct file the address of p, the offset and the length
// must keep Direct()'s alignment; anything else is an error, never a wrong read.
// ReadAt returns fewer bytes than asked only with an error (io.EOF at the end).
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	Size() int64
	// Direct reports the alignment that direct reads need, or the zero value
	// where reads go through the page cache. It never changes: a file that falls
	// back to buffered reads later keeps it. IsDirect tells how it is read now.
	Direct() Alignment
	Close() error
}

// VectorFile is a File that fills several buffers from one contiguous range with
// one request to the device, so that neighbours cost one read. The files of this
// module's file systems are.
type VectorFile interface {
	File
	// ReadVAt is ReadAt of the buffers one after another, and returns the bytes
	// of all. On a direct file the address of each buffer keeps the memory
	// alignment, off and each length the offset alignment. More than
	// MaxVector buffers are an error.
	ReadVAt(bufs [][]byte, off int64) (int, error)
}

// ReadV reads as VectorFile.ReadVAt does, from a file of any kind: one that is
// no VectorFile is read buffer by buffer.
func ReadV(f File, bufs [][]byte, off int64) (int, error) {
	if v, ok := f.(VectorFile); ok {
		return v.ReadVAt(bufs, off)
	}
	return readEach(f, bufs, off)
}

// IsDirect reports whether a file is read around the page cache now. A file that
// was opened for that may have fallen back since: FallbackReason says why.
func IsDirect(f File) bool {
	return f.Direct() != (Alignment{}) && Engine(f) != EngineBuffered
}

// MaxVector is how many buffers one ReadVAt takes at most.
const MaxVector = 64

// Alignment is what direct reads need of a buffer's address and of a file
// offset and length, in bytes, each a power of two. Zero means buffered.
type Alignment struct {
	Memory, Offset int
}

// WriteFS is the part of a file system that building a store needs.
type WriteFS interface {
	FS
	// Create makes a new file; it is an error if the name exists.
	Create(name string) (WriteFile, error)
	Mkdir(name string) error
	// Rename replaces nothing: it is an error if newName exists.
	Rename(oldName, newName string) error
	// RemoveAll removes a file or folder with all it holds; nil if there is none.
	RemoveAll(name string) error
	// SyncDir makes the entries of a folder durable.
	SyncDir(name string) error
	// Free is the space in bytes that may still be written below dir.
	Free(dir string) (int64, error)
}

// WriteFile is a file being written. WriteAt may be called from several goroutines.
type WriteFile interface {
	WriteAt(p []byte, off int64) (int, error)
	ReadAt(p []byte, off int64) (int, error)
	Sync() error
	Close() error
}
