package safetensors

import (
	"path/filepath"
	"slices"
	"strconv"
)

// checkIndex holds the headers against the index, both ways.
func (s *Set) checkIndex(ix *index) error {
	files := make([]int, len(s.shards)) // as the index numbers them; -1: it names only another part
	for i := range s.shards {
		files[i] = slices.Index(ix.files, filepath.Base(s.shards[i].Path))
	}
	var unknown []string
	var total int64
	placed := 0 // a name stands once in a file, so that it is counted once
	for i := range s.tensors {
		t := &s.tensors[i]
		total += t.Bytes
		switch file, ok := ix.of[t.Name]; {
		case !ok:
			unknown = append(unknown, strconv.Quote(t.Name))
		case file == files[t.Shard]:
			placed++
		}
	}
	if placed < len(ix.of) {
		return s.misplaced(ix, files)
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		unknown = slices.Compact(unknown)
		return wrong(ErrIndex, ix.path, -1, "it lacks %d tensors that are in the files: %s; get index and files again, from one place", len(unknown), listed(unknown))
	}
	if ix.total >= 0 && ix.total != total {
		s.note("%s says that the tensors have %d bytes, they have %d", filepath.Base(ix.path), ix.total, total)
	}
	return nil
}

// misplaced says which tensors are not where the index says. files numbers the
// set's files as the index does.
func (s *Set) misplaced(ix *index, files []int) error {
	inPlace := map[string]struct{}{}
	for i := range s.tensors {
		if t := &s.tensors[i]; ix.of[t.Name] == files[t.Shard] {
			inPlace[t.Name] = struct{}{}
		}
	}
	var missing, elsewhere []string
	for _, name := range sortedNames(ix.of) {
		if _, ok := inPlace[name]; ok {
			continue
		}
		if _, ok := s.byName[name]; ok {
			elsewhere = append(elsewhere, strconv.Quote(name))
		} else {
			missing = append(missing, strconv.Quote(name))
		}
	}
	if len(missing) > 0 {
		return wrong(ErrIndex, ix.path, -1, "%d of %d tensors that it names are in none of the files: %s; get index and files again, from one place", len(missing), len(ix.of), listed(missing))
	}
	return wrong(ErrIndex, ix.path, -1, "%d tensors lie in another file than it says: %s; get index and files again, from one place", len(elsewhere), listed(elsewhere))
}

// checkParts sees that all parts of every tensor are there. parts lists them by
// tensor; one that is in a single file is whole, whichever part's file that is.
func (s *Set) checkParts(parts map[string][]int) error {
	count := 0 // of parts
	have := map[int]bool{}
	for i := range s.shards {
		if part, _ := partOf(filepath.Base(s.shards[i].Path)); part >= 0 {
			have[part] = true
			count = max(count, part+1)
		}
	}
	var missing []string
	for part := range count {
		if !have[part] {
			missing = append(missing, strconv.Itoa(part))
		}
	}
	if len(missing) > 0 {
		return wrong(ErrMissingShard, s.dir, -1, "the tensor-parallel files make %d parts, but there is none of part %s; get them and put them there", count, listed(missing))
	}
	for _, name := range sortedNames(parts) {
		switch n := len(parts[name]); {
		case n == 1:
			s.tensors[s.byName[name]].Part = 0
		case n != count:
			missing = append(missing, strconv.Quote(name))
		}
	}
	if len(missing) > 0 {
		return wrong(ErrMissingShard, s.dir, -1, "%d tensors are in some, but not in all of the %d parts: %s; get the files again", len(missing), count, listed(missing))
	}
	return nil
}
