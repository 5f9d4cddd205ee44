package memfs

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"outrider/layout"
)

// Options are what a file system pretends to be. The zero value reads buffered
// and never runs full.
type Options struct {
	// Align is what files opened with mode layout.Direct demand of their reads;
	// zero means that direct reads do not work and files open buffered.
	Align layout.Alignment
	// Limit is the space in bytes that all files may take; 0 means no limit.
	Limit int64
}

// FS is a file system in memory.
type FS struct {
	opts Options

	mu    sync.Mutex
	nodes map[string]*node // by clean path; the roots are not in it
	used  int64            // bytes of all files that have a name
}

var _ layout.WriteFS = (*FS)(nil)

type node struct {
	dir  bool
	data []byte // guarded by FS.mu
}

// New returns an empty file system.
func New(opts Options) *FS { return &FS{opts: opts, nodes: map[string]*node{}} }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func isRoot(name string) bool { return name == "." || name == filepath.Dir(name) }

// findLocked returns the node of a clean path, nil if there is none.
func (f *FS) findLocked(name string) *node {
	if isRoot(name) {
		return &node{dir: true}
	}
	return f.nodes[name]
}

// addLocked makes a node whose folder must exist and whose name must be free.
func (f *FS) addLocked(op, name string, n *node) error {
	name = filepath.Clean(name)
	if f.findLocked(name) != nil {
		return pathError(op, name, fs.ErrExist)
	}
	parent := f.findLocked(filepath.Dir(name))
	if parent == nil {
		return pathError(op, name, fs.ErrNotExist)
	}
	if !parent.dir {
		return pathError(op, name, syscall.ENOTDIR)
	}
	f.nodes[name] = n
	return nil
}

// fileLocked finds what is to be opened.
func (f *FS) fileLocked(name string) (*node, error) {
	n := f.findLocked(filepath.Clean(name))
	switch {
	case n == nil:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n.dir:
		return nil, pathError("open", name, fmt.Errorf("not a regular file"))
	}
	return n, nil
}

// Open opens a file; see Options.Align for mode Direct.
func (f *FS) Open(name string, mode layout.Mode) (layout.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.fileLocked(name)
	if err != nil {
		return nil, err
	}
	file := &readFile{fs: f, node: n, name: name}
	if mode == layout.Direct {
		file.align = f.opts.Align
		if file.align == (layout.Alignment{}) {
			file.reason = "memory has no direct reads"
		}
	}
	return file, nil
}

// Create makes a new file.
func (f *FS) Create(name string) (layout.WriteFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &node{}
	if err := f.addLocked("create", name, n); err != nil {
		return nil, err
	}
	return &writeFile{fs: f, node: n, name: name}, nil
}

// Mkdir makes a folder.
func (f *FS) Mkdir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addLocked("mkdir", name, &node{dir: true})
}

// Rename moves a file, or a folder with all it holds.
func (f *FS) Rename(oldName, newName string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldName, newName = filepath.Clean(oldName), filepath.Clean(newName)
	n := f.nodes[oldName]
	if n == nil {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	if err := f.addLocked("rename", newName, n); err != nil {
		return err
	}
	delete(f.nodes, oldName)
	for _, name := range f.belowLocked(oldName) {
		f.nodes[newName+strings.TrimPrefix(name, oldName)] = f.nodes[name]
		delete(f.nodes, name)
	}
	return nil
}

// belowLocked lists the names of all that a folder holds.
func (f *FS) belowLocked(dir string) []string {
	prefix := dir
	if !strings.HasSuffix(prefix, string(filepath.Separator)) {
		prefix += string(filepath.Separator)
	}
	var names []string
	for name := range f.nodes {
		if strings.HasPrefix(name, prefix) || (dir == "." && !filepath.IsAbs(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// RemoveAll removes a file, or a folder with all it holds.
func (f *FS) RemoveAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	for _, name := range append(f.belowLocked(name), name) {
		if n := f.nodes[name]; n != nil {
			f.used -= int64(len(n.data))
			delete(f.nodes, name)
		}
	}
	return nil
}

// SyncDir does nothing to a folder that exists.
func (f *FS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.findLocked(filepath.Clean(name)); n == nil || !n.dir {
		return pathError("sync", name, fs.ErrNotExist)
	}
	return nil
}

// Free is what Options.Limit leaves, or 1 TiB.
func (f *FS) Free(string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opts.Limit == 0 {
		return 1 << 40, nil
	}
	return f.opts.Limit - f.used, nil
}

// Stat describes a file or folder.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.findLocked(filepath.Clean(name))
	if n == nil {
		return nil, pathError("stat", name, fs.ErrNotExist)
	}
	return info{name: filepath.Base(name), size: int64(len(n.data)), dir: n.dir}, nil
}

// ReadDir lists a folder by name.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	if n := f.findLocked(name); n == nil || !n.dir {
		return nil, pathError("readdir", name, fs.ErrNotExist)
	}
	var out []fs.DirEntry
	for _, below := range f.belowLocked(name) {
		if n := f.nodes[below]; filepath.Dir(below) == name {
			out = append(out, fs.FileInfoToDirEntry(info{name: filepath.Base(below), size: int64(len(n.data)), dir: n.dir}))
		}
	}
	return out, nil
}

// info is what Stat returns: no times and no owner.
type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) IsDir() bool        { return i.dir }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) Sys() any           { return nil }

func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
