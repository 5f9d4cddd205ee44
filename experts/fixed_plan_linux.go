package experts

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// stackPlan says how the experts of a layer lie in their stack.
type stackPlan struct {
	stride int64 // from one expert's start to the next one's
	prefix int64 // of each record, from its start: what is in huge pages
	moves  bool  // starts are on 2 MiB, and pages go from one expert to another
}

// leastMoved is the smallest record that gets 2 MiB of address space for itself,
// so that its pages move with the page table that names them, in one step. The
// table is memory too, 4 KiB of it: under one percent from here on.
const leastMoved = 512 << 10

// planStacks chooses for layers with these slot bytes. It spends no more than so
// many of the kernel's mappings, the first layers first: pages that came from
// elsewhere are a mapping of their own, and so is what is advised otherwise than
// its neighbours.
func planStacks(bytes []int64, experts int, mappings int64) []stackPlan {
	plans := make([]stackPlan, len(bytes))
	cuts := planCuts(bytes)
	for l, b := range bytes {
		need := int64(experts) * mappingsOf(b, cuts)
		switch {
		case b >= leastMoved && need <= mappings:
			mappings -= need
			plans[l] = stackPlan{stride: roundUp(b, hugeBytes), prefix: prefix(b), moves: true}
		case b%hugeBytes == 0:
			plans[l] = stackPlan{stride: b, prefix: b} // the stack is one mapping
		default:
			plans[l] = stackPlan{stride: b}
		}
	}
	return plans
}

// planCuts is where prefixes end, ascending. Pages move from cut to cut, so that
// no move ever has to take its pages from two mappings.
func planCuts(bytes []int64) []int64 {
	var cuts []int64
	for _, b := range bytes {
		if p := prefix(b); p > 0 {
			cuts = append(cuts, p)
		}
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// mappingsOf is how many mappings a record comes to whose pages move.
func mappingsOf(bytes int64, cuts []int64) int64 {
	n, ends := slices.BinarySearch(cuts, prefix(bytes))
	if ends {
		n++
	}
	if bytes%hugeBytes > 0 {
		n++
	}
	return int64(n)
}

// mappingsToSpend is half of what a process may have: the other half is the
// process's own, locked tails (one more for each expert in memory), and other
// runtimes'.
func mappingsToSpend() int64 {
	const usual = 65530
	text, err := readSmall(os.DirFS("/"), "proc/sys/vm/max_map_count")
	if err != nil {
		return usual / 2
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return usual / 2
	}
	return n / 2
}
