package faultfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"outrider/layout"
)

// Op is an operation of a file system or of a file.
type Op uint8

// The operations. ReadAt and WriteAt, Sync and Close are those of files.
const (
	Open Op = iota
	Stat
	ReadDir
	Create
	Mkdir
	Rename // the name is the old one
	RemoveAll
	SyncDir
	Free
	ReadAt
	WriteAt
	Sync
	Close
	ops
)

// Kind is what a rule does to a call.
type Kind uint8

const (
	Fail   Kind = iota // do nothing and return Err
	Short              // ReadAt, WriteAt: carry out Bytes bytes only, return their number and Err
	Silent             // ReadAt, WriteAt: claim success for all bytes and carry out none
	Flip               // ReadAt, WriteAt: invert bit Bit of the bytes
	Delay              // sleep for Delay, then carry on
	Hang               // wait for Release, then carry on
)

// ErrInjected is the error of a Fail rule that names none.
var ErrInjected = errors.New("faultfs: injected error")

// Rule chooses calls and says what happens to them.
type Rule struct {
	Op   Op
	Name string // pattern of filepath.Match for the last element of the path; empty: all
	// From and To count the calls that fit Op and Name from 1; From 0 means 1,
	// To 0 means all further ones.
	From, To int
	Kind     Kind
	Err      error         // Fail and Short; nil means ErrInjected for Fail and no error for Short
	Bytes    int           // Short
	Bit      int64         // Flip: modulo the length in bits
	Delay    time.Duration // Delay
}

// FS passes calls on to another file system, with faults.
type FS struct {
	inner layout.FS

	mu       sync.Mutex
	rules    []Rule
	seen     []int // calls that fitted each rule
	calls    [ops]int
	released chan struct{}
	open     bool // released is closed
}

var _ layout.WriteFS = (*FS)(nil)

// New wraps a file system. Where inner is no layout.WriteFS, writing fails with
// errors.ErrUnsupported.
func New(inner layout.FS, rules ...Rule) *FS {
	return &FS{inner: inner, rules: rules, seen: make([]int, len(rules)), released: make(chan struct{})}
}

// Add adds a rule behind the others.
func (f *FS) Add(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
	f.seen = append(f.seen, 0)
}

// Clear removes all rules; hanging calls go on hanging.
func (f *FS) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules, f.seen = nil, nil
}

// Release lets all hanging calls go on, and those that would hang from now on.
func (f *FS) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open {
		f.open = true
		close(f.released)
	}
}

// Calls is the number of calls of an operation, with faults or without.
func (f *FS) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Seen is the number of calls that fitted the rule with this index.
func (f *FS) Seen(rule int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[rule]
}

// choose counts a call and returns the rule that acts on it.
func (f *FS) choose(op Op, name string) (Rule, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	var chosen Rule
	found := false
	for i, r := range f.rules {
		if r.Op != op || !r.fits(name) {
			continue
		}
		f.seen[i]++
		if n := f.seen[i]; !found && n >= max(r.From, 1) && (r.To == 0 || n <= r.To) {
			chosen, found = r, true
		}
	}
	return chosen, found
}

func (r Rule) fits(name string) bool {
	if r.Name == "" {
		return true
	}
	ok, err := filepath.Match(r.Name, filepath.Base(name))
	return ok && err == nil
}

// before carries out the rules that act ahead of a call. For others it returns
// the rule that acts on the call's bytes.
func (f *FS) before(op Op, name string) (*Rule, error) {
	r, ok := f.choose(op, name)
	if !ok {
		return nil, nil
	}
	switch r.Kind {
	case Fail:
		if r.Err == nil {
			r.Err = ErrInjected
		}
		return nil, &fs.PathError{Op: "faultfs", Path: name, Err: r.Err}
	case Delay:
		time.Sleep(r.Delay)
		return nil, nil
	case Hang:
		<-f.released
		return nil, nil
	}
	return &r, nil
}

func (f *FS) writer() (layout.WriteFS, error) {
	if w, ok := f.inner.(layout.WriteFS); ok {
		return w, nil
	}
	return nil, fmt.Errorf("faultfs: %T: %w", f.inner, errors.ErrUnsupported)
}

// do carries out a call of the writing part without a result of its own.
func (f *FS) do(op Op, name string, call func(layout.WriteFS) error) error {
	if _, err := f.before(op, name); err != nil {
		return err
	}
	w, err := f.writer()
	if err != nil {
		return err
	}
	return call(w)
}

// Open opens a file whose calls are subject to the rules too.
func (f *FS) Open(name string, mode layout.Mode) (layout.File, error) {
	if _, err := f.before(Open, name); err != nil {
		return nil, err
	}
	inner, err := f.inner.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return &readFile{File: inner, fs: f, name: name}, nil
}

// Stat passes on.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	if _, err := f.before(Stat, name); err != nil {
		return nil, err
	}
	return f.inner.Stat(name)
}

// ReadDir passes on.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if _, err := f.before(ReadDir, name); err != nil {
		return nil, err
	}
	return f.inner.ReadDir(name)
}

// Create makes a file whose calls are subject to the rules too.
func (f *FS) Create(name string) (layout.WriteFile, error) {
	var file layout.WriteFile
	err := f.do(Create, name, func(w layout.WriteFS) (err error) {
		file, err = w.Create(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &writeFile{WriteFile: file, fs: f, name: name}, nil
}

// Mkdir passes on.
func (f *FS) Mkdir(name string) error {
	return f.do(Mkdir, name, func(w layout.WriteFS) error { return w.Mkdir(name) })
}

// Rename passes on.
func (f *FS) Rename(oldName, newName string) error {
	return f.do(Rename, oldName, func(w layout.WriteFS) error { return w.Rename(oldName, newName) })
}

// RemoveAll passes on.
func (f *FS) RemoveAll(name string) error {
	return f.do(RemoveAll, name, func(w layout.WriteFS) error { return w.RemoveAll(name) })
}

// SyncDir passes on.
func (f *FS) SyncDir(name string) error {
	return f.do(SyncDir, name, func(w layout.WriteFS) error { return w.SyncDir(name) })
}

// Free passes on.
func (f *FS) Free(dir string) (free int64, err error) {
	err = f.do(Free, dir, func(w layout.WriteFS) (err error) {
		free, err = w.Free(dir)
		return err
	})
	return free, err
}
