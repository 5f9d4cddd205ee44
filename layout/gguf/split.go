package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"

	"outrider/layout"
)

const (
	keySplitNo      = "split.no"
	keySplitCount   = "split.count"
	keySplitTensors = "split.tensors.count"
	maxShards       = 99999 // five digits in the name
)

var shardName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// siblings reads the other shards of the checkpoint that s belongs to and
// returns all in order. Whether a file is split is told by its metadata; a
// name alone that looks like a shard's means nothing.
func siblings(fsys layout.FS, s *shard) ([]*shard, error) {
	count, err := s.splitInt(keySplitCount, 1, maxShards)
	if err != nil || count <= 1 {
		return []*shard{s}, err
	}
	no, err := s.splitInt(keySplitNo, -1, count-1)
	if err != nil {
		return nil, err
	}
	prefix, err := s.prefix(no, count)
	if err != nil {
		return nil, err
	}
	paths := make([]string, count)
	for i := range paths {
		paths[i] = ShardName(prefix, i, count)
	}
	if err := checkPresent(fsys, s.file.Path, paths); err != nil {
		return nil, err
	}
	if err := checkNoMore(fsys, s.file.Path, prefix, count); err != nil {
		return nil, err
	}
	shards, err := readShards(fsys, paths, s, no)
	if err != nil {
		return nil, err
	}
	return shards, checkTogether(shards)
}

// readShards reads all shards but s, which is number no. Where several cannot be
// read, the error is of the first and names the others.
func readShards(fsys layout.FS, paths []string, s *shard, no int) ([]*shard, error) {
	shards, total := make([]*shard, len(paths)), 0
	var first error
	var more []string
	for i, path := range paths {
		var err error
		if shards[i] = s; i != no {
			shards[i], err = readShard(fsys, path)
		}
		if err != nil {
			if first == nil {
				first = err
			} else {
				more = append(more, filepath.Base(path))
			}
			continue
		}
		if err := shards[i].checkSplit(i, len(paths)); err != nil {
			return nil, err
		}
		if i > 0 { // only the first shard's metadata is kept
			shards[i].keys, shards[i].meta = nil, nil
		}
		if total += len(shards[i].tensors); total > maxTensors {
			return nil, wrong(ErrSplit, path, "shards 1 to %d have %d tensors, the limit is %d", i+1, total, maxTensors)
		}
	}
	if len(more) > 0 {
		first = fmt.Errorf("%w (nor can be read: %s)", first, listed(more))
	}
	return shards, first
}

// splitInt reads one of the split.* numbers; none is def.
func (s *shard) splitInt(key string, def, limit int) (int, error) {
	v, ok := s.meta[key]
	if !ok {
		return def, nil
	}
	n, ok := v.Uint()
	if !ok || n > uint64(limit) {
		return 0, wrong(ErrSplit, s.file.Path, "%s is %v (%v), want a number up to %d", key, v, v.Kind(), limit)
	}
	return int(n), nil
}

// prefix is the path without what numbers the shard.
func (s *shard) prefix(no, count int) (string, error) {
	m := shardName.FindStringSubmatch(s.file.Path)
	if m == nil {
		return "", wrong(ErrSplit, s.file.Path, "it is a shard of %d, but its name does not end in %q, so the others cannot be found; give it back its name",
			count, ShardName("", max(no, 0), count))
	}
	gotNo, gotCount := atoi(m[2])-1, atoi(m[3])
	if gotNo != no || gotCount != count {
		return "", wrong(ErrSplit, s.file.Path, "its metadata says shard %d of %d, want what its name says; give it back its name", no+1, count)
	}
	return m[1], nil
}

func atoi(digits string) int {
	n, _ := strconv.Atoi(digits) // five digits, by the pattern
	return n
}

// checkPresent looks for all shards before any is read, so that one message
// names everything that is missing.
func checkPresent(fsys layout.FS, opened string, paths []string) error {
	var missing []string
	for _, path := range paths {
		_, err := fsys.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, filepath.Base(path))
		} else if err != nil {
			return fmt.Errorf("gguf: look for shard %s: %w", path, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return wrong(ErrMissingShard, opened, "%d of %d shards are not beside it: %s; get them and put them there", len(missing), len(paths), listed(missing))
}

// checkNoMore looks for shards whose number the set does not have. Where the
// folder cannot be listed there is nothing to see.
func checkNoMore(fsys layout.FS, opened, prefix string, count int) error {
	entries, err := fsys.ReadDir(filepath.Dir(opened))
	if err != nil {
		return nil
	}
	var extra []string
	for _, e := range entries {
		m := shardName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		no := atoi(m[2])
		if (no < 1 || no > count) && e.Name() == filepath.Base(ShardName(prefix, no-1, count)) {
			extra = append(extra, e.Name())
		}
	}
	if len(extra) == 0 {
		return nil
	}
	return wrong(ErrSplit, opened, "the model has %d shards, but beside it lies %s; if it is of another model, move it away, else get all shards again", count, listed(extra))
}

// checkSplit makes sure that the shard is the one it should be, and notes what
// it says about the number of all tensors.
func (s *shard) checkSplit(no, count int) error {
	gotCount, err := s.splitInt(keySplitCount, -1, maxShards)
	if err != nil {
		return err
	}
	gotNo, err := s.splitInt(keySplitNo, -1, maxShards)
	if err != nil {
		return err
	}
	if s.said, err = s.splitInt(keySplitTensors, -1, maxTensors); err != nil {
		return err
	}
	if gotNo != no || gotCount != count {
		return wrong(ErrSplit, s.file.Path, "its metadata says shard %d of %d, want %d of %d; shards of different splits are mixed", gotNo+1, gotCount, no+1, count)
	}
	return nil
}

// checkTogether compares the tensors found with what each shard says about all of
// them, and the shards' byte orders with each other.
func checkTogether(shards []*shard) error {
	total := 0
	for _, s := range shards {
		total += len(s.tensors)
	}
	for _, s := range shards {
		if s.said >= 0 && s.said != total {
			return wrong(ErrSplit, s.file.Path, "%s is %d, but all shards together have %d tensors; shards of different splits are mixed", keySplitTensors, s.said, total)
		}
		if s.big != shards[0].big {
			return wrong(ErrSplit, s.file.Path, "it is big-endian: %v, the first shard: %v; shards of different splits are mixed", s.big, shards[0].big)
		}
	}
	return nil
}
