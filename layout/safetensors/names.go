package safetensors

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	shardName    = regexp.MustCompile(`^(.+)-(\d{1,5})-of-(\d{1,5})\.safetensors$`)
	parallelName = regexp.MustCompile(`-TP-(?:(\d{1,4})|common)\.safetensors$`)
)

// number is what the name of a shard says: no of count. Most count from 1, and
// some write fewer than five digits.
type number struct {
	stem      string
	no, count int
	digits    [2]int
}

func numbered(file string) (number, bool) {
	m := shardName.FindStringSubmatch(file)
	if m == nil {
		return number{}, false
	}
	no, _ := strconv.Atoi(m[2]) // up to five digits, by the pattern
	count, _ := strconv.Atoi(m[3])
	return number{m[1], no, count, [2]int{len(m[2]), len(m[3])}}, true
}

// name is the name of another shard of the same set.
func (n number) name(no int) string {
	return fmt.Sprintf("%s-%0*d-of-%0*d%s", n.stem, n.digits[0], no, n.digits[1], n.count, suffix)
}

func sameStem(a, b string) bool {
	x, ok := numbered(a)
	y, also := numbered(b)
	return ok && also && x.stem == y.stem
}

func sameSet(a, b string) bool {
	x, ok := numbered(a)
	y, also := numbered(b)
	return ok && also && x.stem == y.stem && x.count == y.count
}

// partOf is the part that a tensor-parallel file holds, by its name; -1 for the
// files of what is whole in every part ("common"), and for all that are not parallel.
func partOf(file string) (part int, parallel bool) {
	m := parallelName.FindStringSubmatch(file)
	if m == nil || m[1] == "" {
		return -1, m != nil
	}
	part, _ = strconv.Atoi(m[1]) // up to four digits, by the pattern
	return part, true
}

func isParallel(file string) bool { _, ok := partOf(file); return ok }

func isConsolidated(file string) bool { return strings.HasPrefix(file, "consolidated") }
func isAdapter(file string) bool      { return strings.HasPrefix(file, "adapter_") }

// inOrder puts shards in the order of their numbers, which without leading zeros
// is not the order of their names.
func inOrder(a, b string) int {
	key := func(file string) number {
		if n, ok := numbered(file); ok {
			return n
		}
		return number{stem: strings.TrimSuffix(file, suffix), no: -1}
	}
	x, y := key(a), key(b)
	return cmp.Or(strings.Compare(x.stem, y.stem), cmp.Compare(x.no, y.no), strings.Compare(a, b))
}

// without returns the names that are not among others.
func without(names, others []string) []string {
	there := make(map[string]bool, len(others))
	for _, name := range others {
		there[name] = true
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return there[name] })
}

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
