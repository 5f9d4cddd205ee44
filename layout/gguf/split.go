package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

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
	shards, total := make([]*shard, count), 0
	for i, path := range paths {
		if i == no {
			shards[i] = s
		} else if shards[i], err = readShard(fsys, path); err != nil {
			return nil, err
		}
		if err := shards[i].checkSplit(i, count); err != nil {
			return nil, err
		}
		if i > 0 { // only the first shard's metadata is kept
			shards[i].keys, shards[i].meta = nil, nil
		}
		if total += len(shards[i].tensors); total > maxTensors {
			return nil, wrong(ErrSplit, path, "shards 1 to %d have %d tensors, the limit is %d", i+1, total, maxTensors)
		}
	}
	return shards, checkTotal(shards, total)
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
	const most = 20
	var missing []string
	n := 0
	for _, path := range paths {
		_, err := fsys.Stat(path)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("gguf: look for shard %s: %w", path, err)
		}
		if n++; n <= most {
			missing = append(missing, filepath.Base(path))
		}
	}
	if n == 0 {
		return nil
	}
	names := strings.Join(missing, ", ")
	if n > most {
		names += fmt.Sprintf(" and %d more", n-most)
	}
	return wrong(ErrMissingShard, opened, "%d of %d shards are not beside it: %s; get them and put them there", n, len(paths), names)
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

// checkTotal compares the tensors found with what each shard says about all of them.
func checkTotal(shards []*shard, total int) error {
	for _, s := range shards {
		if s.said >= 0 && s.said != total {
			return wrong(ErrSplit, s.file.Path, "%s is %d, but all shards together have %d tensors; shards of different splits are mixed", keySplitTensors, s.said, total)
		}
	}
	return nil
}
