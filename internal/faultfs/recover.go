package faultfs

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"outrider/internal/memfs"
)

// sector is what a device writes whole or not at all.
const sector = 512

// folder is the number of a folder among files.
const folder = -1

// Recover tells what the device holds after the crash: a new file system in memory.
// Writes and changes of names that were not durable are there or not, and writes also
// in part, by the seed; what depends on a folder that is not there is not there either.
// It may be asked more than once.
func (c *Crash) Recover(seed uint64) *memfs.FS {
	c.mu.Lock()
	defer c.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 6))
	tree := map[string]int{}
	for _, name := range c.folders {
		tree[name] = folder
	}
	maps.Copy(tree, c.base)
	for _, o := range c.names {
		if o.durable || rng.IntN(2) == 0 {
			o.apply(tree)
		}
	}
	out := memfs.New(memfs.Options{})
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if tree[name] == folder {
			_ = out.MkdirAll(name)
			continue
		}
		_ = out.WriteFile(name, c.files[tree[name]].after(rng))
	}
	return out
}

// after is what remains of a file: of each write that was not durable all, some
// sectors, or nothing.
func (f *crashFile) after(rng *rand.Rand) []byte {
	data := append([]byte(nil), f.durable...)
	for _, w := range f.writes {
		switch rng.IntN(3) {
		case 0:
			data = w.onto(data)
		case 1:
			for at := 0; at < len(w.data); at += sector {
				if rng.IntN(2) == 0 {
					data = crashWrite{w.off + int64(at), w.data[at:min(at+sector, len(w.data))]}.onto(data)
				}
			}
		}
	}
	return data
}

// apply carries out a change of names if what it needs is there.
func (o *nameOp) apply(tree map[string]int) {
	there := func(name string) bool { _, ok := tree[name]; return ok }
	isRoot := func(name string) bool { return name == filepath.Dir(name) }
	fits := func(name string) bool {
		dir := filepath.Dir(name)
		return !there(name) && (isRoot(dir) || there(dir) && tree[dir] == folder)
	}
	switch o.op {
	case Create:
		if fits(o.name) {
			tree[o.name] = o.file
		}
	case Mkdir:
		if fits(o.name) {
			tree[o.name] = folder
		}
	case Rename:
		if there(o.name) && fits(o.to) {
			rename(tree, o.name, o.to)
		}
	case RemoveAll:
		for name := range tree {
			if rest, ok := strings.CutPrefix(name, o.name); ok && (rest == "" || rest[0] == filepath.Separator) {
				delete(tree, name)
			}
		}
	}
}
