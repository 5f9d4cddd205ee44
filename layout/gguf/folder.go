package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"outrider/layout"
)

// candidate is a file, or the shards of one set, that may be a folder's model.
type candidate struct {
	path   string // of the file or of a shard
	what   string // for messages: a name, or "m-*-of-00003.gguf (3 files)"
	isNone string // what it is instead of a model; "" for a model
	err    error  // why it cannot be read
}

// theModel finds the one model in a folder. Files that are something else by what
// they say of themselves (a projector, an adapter, an importance matrix, a
// vocabulary) do not count; a file that cannot be read does, since it may be the
// model. Folders below are not searched.
func theModel(fsys layout.FS, dir string) (string, error) {
	files, err := ggufFiles(fsys, dir)
	if err != nil {
		return "", err
	}
	all, err := candidates(fsys, dir, files)
	if err != nil {
		return "", err
	}
	var models, others []string
	var model candidate
	for _, c := range all {
		switch {
		case c.err != nil:
			models, model = append(models, c.what+" (cannot be read)"), c
		case c.isNone != "":
			others = append(others, c.what+" ("+c.isNone+")")
		default:
			models, model = append(models, c.what), c
		}
	}
	switch {
	case len(models) > 1:
		return "", wrong(ErrSeveral, dir, "%s; name one of them", listed(models))
	case len(models) == 1:
		return model.path, model.err
	case len(others) > 0:
		return "", wrong(ErrNoModel, dir, "it holds %s; name the model's own file or folder", listed(others))
	}
	return "", wrong(ErrNoModel, dir, "no file in it is named *.gguf (folders in it are not searched); name the model's own file or folder")
}

// ggufFiles lists the names of a folder's GGUF files, in order. What starts with a
// dot is another system's note on a file of that name.
func ggufFiles(fsys layout.FS, dir string) ([]string, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("gguf: list %s: %w", dir, err)
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && !strings.HasPrefix(name, ".") && strings.EqualFold(filepath.Ext(name), ".gguf") {
			names = append(names, name)
		}
	}
	return names, nil
}

// candidates groups files into sets by their names, where their metadata says that
// they are shards, and looks at one file of each.
func candidates(fsys layout.FS, dir string, names []string) ([]candidate, error) {
	var order []string // of sets and single files
	sets := map[string][]string{}
	for _, name := range names {
		key := name
		if m := shardName.FindStringSubmatch(name); m != nil {
			key = m[1] + "-*-of-" + m[3] + ".gguf"
		}
		if sets[key] == nil {
			order = append(order, key)
		}
		sets[key] = append(sets[key], name)
	}
	var all []candidate
	for _, key := range order {
		found, err := lookAt(fsys, dir, key, sets[key])
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// lookAt reads the metadata of the first readable file of a set. Files that only
// look like shards count each for itself.
func lookAt(fsys layout.FS, dir, key string, names []string) ([]candidate, error) {
	set := candidate{path: filepath.Join(dir, names[0]), what: names[0]}
	if key != names[0] {
		set.what = fmt.Sprintf("%s (%d files)", key, len(names))
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		isShard, isNone, err := lookAtFile(fsys, path)
		switch {
		case err != nil && !errors.As(err, new(*FormatError)):
			return nil, err
		case err != nil:
			if set.err == nil {
				set.err = err
			}
			continue
		case key == names[0] || isShard:
			set.path, set.isNone, set.err = path, isNone, nil
			return []candidate{set}, nil
		}
		return singles(fsys, dir, names)
	}
	return []candidate{set}, nil
}

func singles(fsys layout.FS, dir string, names []string) ([]candidate, error) {
	var all []candidate
	for _, name := range names {
		path := filepath.Join(dir, name)
		_, isNone, err := lookAtFile(fsys, path)
		if err != nil && !errors.As(err, new(*FormatError)) {
			return nil, err
		}
		all = append(all, candidate{path: path, what: name, isNone: isNone, err: err})
	}
	return all, nil
}

// lookAtFile reads a file's metadata. A shard may be without tensors, and all but
// the first are without metadata: of these nothing can be told.
func lookAtFile(fsys layout.FS, path string) (isShard bool, isNone string, err error) {
	err = withFile(fsys, path, func(file layout.File) error {
		s, tensors, err := parseStart(&cursor{file: file, path: path})
		if err != nil {
			return err
		}
		count, err := s.splitInt(keySplitCount, 1, maxShards)
		if err != nil {
			return err
		}
		isShard = count > 1
		kind, _ := s.meta["general.type"].Str()
		arch, _ := s.meta["general.architecture"].Str()
		switch {
		case kind != "" && kind != "model":
			isNone = fmt.Sprintf("general.type %q", kind)
		case arch == "clip" || arch == "controlvector": // from before general.type
			isNone = fmt.Sprintf("general.architecture %q", arch)
		case tensors == 0 && !isShard:
			isNone = "no tensors"
		}
		return nil
	})
	return isShard, isNone, err
}

// listed joins names for a message, not all of very many.
func listed(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
