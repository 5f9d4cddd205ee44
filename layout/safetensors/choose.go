package safetensors

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"outrider/layout"
)

const (
	suffix    = ".safetensors"
	mainIndex = "model" + indexSuffix
)

// choice is which files are the model, and what to tell about the others.
type choice struct {
	dir   string
	files []string // names in dir, in order
	index *index   // nil if there is none
	notes []string
}

func (c *choice) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// folder is what of a folder matters here.
type folder struct {
	path    string
	files   []string // *.safetensors, in order
	indexes []string // *.safetensors.index.json
	folders []string
}

// choose finds the files that a path stands for.
func choose(fsys layout.FS, path string) (*choice, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: open %s: %w", path, err)
	}
	dir := path
	if !info.IsDir() {
		dir = filepath.Dir(path)
	}
	d, err := list(fsys, dir)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return d.choose(fsys)
	case filepath.Ext(path) == ".json":
		return d.byIndex(fsys, filepath.Base(path))
	}
	return d.around(fsys, filepath.Base(path))
}

func list(fsys layout.FS, dir string) (*folder, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("safetensors: list %s: %w", dir, err)
	}
	d := &folder{path: dir}
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir():
			d.folders = append(d.folders, name)
		case strings.HasSuffix(name, suffix):
			d.files = append(d.files, name)
		case strings.HasSuffix(name, indexSuffix):
			d.indexes = append(d.indexes, name)
		}
	}
	slices.SortFunc(d.files, inOrder)
	slices.Sort(d.indexes)
	return d, nil
}

// choose finds the model of a folder.
func (d *folder) choose(fsys layout.FS) (*choice, error) {
	switch {
	case len(d.indexes) == 1:
		return d.byIndex(fsys, d.indexes[0])
	case slices.Contains(d.indexes, mainIndex):
		c, err := d.byIndex(fsys, mainIndex)
		if err != nil {
			return nil, err
		}
		others := slices.DeleteFunc(slices.Clone(d.indexes), func(name string) bool { return name == mainIndex })
		c.note("%s was followed, not %s", mainIndex, listed(others))
		return c, nil
	case len(d.indexes) > 1:
		return nil, wrong(ErrSet, d.path, -1, "it has %d indexes: %s; give the path of the one that is meant", len(d.indexes), listed(d.indexes))
	}
	return d.withoutIndex(fsys)
}

// byIndex takes the files that an index names. Other shards of the same name are
// a sign of two downloads in one folder; all else is left alone.
func (d *folder) byIndex(fsys layout.FS, name string) (*choice, error) {
	ix, err := readIndex(fsys, filepath.Join(d.path, name))
	if err != nil {
		return nil, err
	}
	c := &choice{dir: d.path, index: ix, files: slices.Clone(ix.files)}
	if missing := without(ix.files, d.files); len(missing) > 0 {
		return nil, wrong(ErrMissingShard, ix.path, -1, "%d of its %d files are not beside it: %s; get them and put them there", len(missing), len(ix.files), listed(missing))
	}
	parallel := slices.ContainsFunc(ix.files, isParallel)
	var shards, others []string
	for _, file := range without(d.files, ix.files) {
		switch {
		case parallel && isParallel(file): // the index can name one of the parts only
			c.files = append(c.files, file)
		case slices.ContainsFunc(ix.files, func(of string) bool { return sameStem(of, file) }):
			shards = append(shards, file)
		default:
			others = append(others, file)
		}
	}
	if len(shards) > 0 {
		return nil, wrong(ErrIndex, ix.path, -1, "%d shards of the same name lie beside it that it does not name: %s; put away what belongs to another download, or get the right index", len(shards), listed(shards))
	}
	if len(others) > 0 {
		c.note("left out, for %s does not name them: %s", name, listed(others))
	}
	slices.SortFunc(c.files, inOrder)
	return c, nil
}

// withoutIndex takes all files of a folder that make one set.
func (d *folder) withoutIndex(fsys layout.FS) (*choice, error) {
	c := &choice{dir: d.path}
	c.files = c.leaveOut(d.files, "adapters to a model", isAdapter)
	if slices.ContainsFunc(c.files, func(name string) bool { return !isConsolidated(name) }) {
		c.files = c.leaveOut(c.files, "the same weights a second time", isConsolidated)
	}
	if len(c.files) == 0 {
		return nil, d.empty(fsys, c.notes)
	}
	groups := map[string]string{} // a shard of each group
	for _, file := range c.files {
		if n, ok := numbered(file); ok {
			groups[fmt.Sprintf("%s-*-of-%05d%s", n.stem, n.count, suffix)] = file
		}
	}
	if len(groups) > 1 {
		return nil, wrong(ErrSet, d.path, -1, "it has shards of %d sets and no index: %s; give the path of a shard of the one that is meant", len(groups), listed(sortedNames(groups)))
	}
	for _, shard := range groups {
		if err := d.complete(shard, c.files); err != nil {
			return nil, err
		}
	}
	if len(c.files) > 1 {
		c.note("no index lies beside the %d files, so that a missing tensor would not be noticed here; taken together: %s", len(c.files), listed(c.files))
	}
	return c, nil
}

// leaveOut returns the files that are not of a kind, and notes those that are.
func (c *choice) leaveOut(files []string, why string, kind func(string) bool) []string {
	kept := slices.DeleteFunc(slices.Clone(files), kind)
	if out := without(files, kept); len(out) > 0 {
		c.note("left out, as %s: %s", why, listed(out))
	}
	return kept
}

// empty says where files could be.
func (d *folder) empty(fsys layout.FS, notes []string) error {
	var where []string
	for _, name := range d.folders {
		if below, err := list(fsys, filepath.Join(d.path, name)); err == nil && len(below.files) > 0 {
			where = append(where, name)
		}
	}
	reason := "it has no .safetensors file of a model"
	for _, n := range notes {
		reason += " (" + n + ")"
	}
	if len(where) > 0 {
		reason += "; there are some in " + listed(where) + ": give that path"
	}
	return wrong(ErrSet, d.path, -1, "%s", reason)
}

// around takes one file, and those whose shard it is.
func (d *folder) around(fsys layout.FS, name string) (*choice, error) {
	for _, file := range d.indexes {
		ix, err := readIndex(fsys, filepath.Join(d.path, file))
		if err != nil {
			return nil, err
		}
		if slices.Contains(ix.files, name) {
			return d.byIndex(fsys, file)
		}
	}
	c := &choice{dir: d.path, files: []string{name}}
	if _, ok := numbered(name); ok {
		c.files = slices.DeleteFunc(slices.Clone(d.files), func(other string) bool { return !sameSet(name, other) })
		if err := d.complete(name, c.files); err != nil {
			return nil, err
		}
	} else if isParallel(name) {
		c.files = slices.DeleteFunc(slices.Clone(d.files), func(other string) bool { return !isParallel(other) })
	}
	if len(c.files) > 1 {
		c.note("no index names %s; taken together by their names: %s", name, listed(c.files))
	}
	return c, nil
}

// complete checks that all shards of one numbering are there, and none too many.
func (d *folder) complete(shard string, files []string) error {
	n, _ := numbered(shard)
	have := map[int]bool{}
	for _, file := range files {
		if other, ok := numbered(file); ok {
			have[other.no] = true
		}
	}
	first := 1
	if have[0] {
		first = 0
	}
	var missing []string
	for no := first; no < first+n.count; no++ {
		if !have[no] {
			missing = append(missing, n.name(no))
		}
		delete(have, no)
	}
	path := filepath.Join(d.path, shard)
	if len(missing) > 0 {
		return wrong(ErrMissingShard, path, -1, "%d of %d shards are not beside it: %s; get them and put them there", len(missing), n.count, listed(missing))
	}
	for no := range have {
		return wrong(ErrSet, path, -1, "%s is beyond the last of %d shards: put it away", n.name(no), n.count)
	}
	return nil
}
