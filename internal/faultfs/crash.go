package faultfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"outrider/internal/memfs"
	"outrider/layout"
)

// ErrCrashed is what every call answers once a Crash has happened.
var ErrCrashed = errors.New("faultfs: crashed")

// Crash is a file system in memory that stops at a chosen operation, as when power
// fails, and then tells what a device may hold: what was made durable, and of the
// rest whatever the seed has it.
//
// A file's bytes are durable by its Sync, names by the SyncDir of their folder. What
// was in the memory file system before is durable. Safe for concurrent use; the mutex
// is held over calls of the file system in memory only.
type Crash struct {
	mem *memfs.FS

	mu      sync.Mutex
	left    int // operations until the crash
	done    int
	base    map[string]int // files of before, by number
	files   []crashFile
	numbers map[string]int // of files, by their present name
	names   []nameOp
	folders []string // of before
}

var _ layout.ResumeFS = (*Crash)(nil)

// crashFile is what is known of one file, whatever its name.
type crashFile struct {
	durable []byte
	writes  []crashWrite // since the last sync
}

type crashWrite struct {
	off  int64
	data []byte
}

// nameOp is a change of names.
type nameOp struct {
	op       Op // Create, Mkdir, Rename or RemoveAll
	name, to string
	file     int
	durable  bool
}

// NewCrash makes a file system with what is in mem that crashes at the operation with
// this number, from 1; 0 means never. Operations are those that write: Create, Mkdir,
// Rename, RemoveAll, SyncDir, WriteAt and Sync. Mem is used, and must not be by others.
func NewCrash(mem *memfs.FS, at int) *Crash {
	c := &Crash{mem: mem, left: at, base: map[string]int{}, numbers: map[string]int{}}
	if at == 0 {
		c.left = -1
	}
	for _, name := range mem.Names() {
		data, err := mem.ReadFile(name)
		if err != nil {
			c.folders = append(c.folders, name)
			continue
		}
		c.base[name], c.numbers[name] = len(c.files), len(c.files)
		c.files = append(c.files, crashFile{durable: data})
	}
	return c
}

// Operations is how many writing operations there were.
func (c *Crash) Operations() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// step carries out one writing operation, unless the crash comes first.
func (c *Crash) step(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return ErrCrashed
	}
	if c.left--; c.left == 0 {
		return ErrCrashed
	}
	c.done++
	return do()
}

// alive refuses calls that do not count after the crash.
func (c *Crash) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return ErrCrashed
	}
	return nil
}

func (c *Crash) note(o nameOp) { c.names = append(c.names, o) }

// Open opens a file for reading; of an open file everything can be read on.
func (c *Crash) Open(name string, mode layout.Mode) (layout.File, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	return c.mem.Open(name, mode)
}

// Stat describes a file or folder.
func (c *Crash) Stat(name string) (fs.FileInfo, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	return c.mem.Stat(name)
}

// ReadDir lists a folder.
func (c *Crash) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	return c.mem.ReadDir(name)
}

// Free is that of the memory.
func (c *Crash) Free(dir string) (int64, error) { return c.mem.Free(dir) }

// Create makes a new file.
func (c *Crash) Create(name string) (w layout.WriteFile, err error) {
	name = filepath.Clean(name)
	err = c.step(func() error {
		inner, err := c.mem.Create(name)
		if err != nil {
			return err
		}
		c.note(nameOp{op: Create, name: name, file: len(c.files)})
		c.numbers[name] = len(c.files)
		c.files = append(c.files, crashFile{})
		w = &crashWriter{WriteFile: inner, c: c, file: len(c.files) - 1}
		return nil
	})
	return w, err
}

// OpenWrite opens an existing file for more writing; it counts no operation.
func (c *Crash) OpenWrite(name string) (layout.WriteFile, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	inner, err := c.mem.OpenWrite(name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &crashWriter{WriteFile: inner, c: c, file: c.numbers[filepath.Clean(name)]}, nil
}

// Mkdir makes a folder.
func (c *Crash) Mkdir(name string) error {
	name = filepath.Clean(name)
	return c.step(func() error {
		c.note(nameOp{op: Mkdir, name: name})
		return c.mem.Mkdir(name)
	})
}

// Rename moves a file or folder.
func (c *Crash) Rename(oldName, newName string) error {
	oldName, newName = filepath.Clean(oldName), filepath.Clean(newName)
	return c.step(func() error {
		if err := c.mem.Rename(oldName, newName); err != nil {
			return err
		}
		c.note(nameOp{op: Rename, name: oldName, to: newName})
		rename(c.numbers, oldName, newName)
		return nil
	})
}

// RemoveAll removes a file, or a folder with all it holds.
func (c *Crash) RemoveAll(name string) error {
	name = filepath.Clean(name)
	return c.step(func() error {
		c.note(nameOp{op: RemoveAll, name: name})
		return c.mem.RemoveAll(name)
	})
}

// SyncDir makes all changes of names in a folder durable so far.
func (c *Crash) SyncDir(name string) error {
	name = filepath.Clean(name)
	return c.step(func() error {
		for i := range c.names {
			o := &c.names[i]
			if filepath.Dir(o.name) == name || (o.op == Rename && filepath.Dir(o.to) == name) {
				o.durable = true
			}
		}
		return c.mem.SyncDir(name)
	})
}

// crashWriter is a file being written.
type crashWriter struct {
	layout.WriteFile
	c    *Crash
	file int
}

func (w *crashWriter) WriteAt(p []byte, off int64) (n int, err error) {
	err = w.c.step(func() error {
		f := &w.c.files[w.file]
		f.writes = append(f.writes, crashWrite{off, append([]byte(nil), p...)})
		n, err = w.WriteFile.WriteAt(p, off)
		return err
	})
	return n, err
}

func (w *crashWriter) Sync() error {
	return w.c.step(func() error {
		f := &w.c.files[w.file]
		for _, write := range f.writes {
			f.durable = write.onto(f.durable)
		}
		f.writes = nil
		return w.WriteFile.Sync()
	})
}

func (w crashWrite) onto(data []byte) []byte {
	if grow := w.off + int64(len(w.data)) - int64(len(data)); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[w.off:], w.data)
	return data
}

// rename moves a name and all names below it.
func rename[V any](names map[string]V, oldName, newName string) {
	for name, v := range names {
		if rest, ok := strings.CutPrefix(name, oldName); ok && (rest == "" || rest[0] == filepath.Separator) {
			delete(names, name)
			names[newName+rest] = v
		}
	}
}
