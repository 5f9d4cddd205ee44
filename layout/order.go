package layout

// CoactivationOrder lines up the experts of one layer so that neighbours are
// used together often. together(a, b) says how often one token used both; it
// is taken as symmetric. The chain starts with the pair that was used together
// most, and grows at whichever end has the best partner left; ties go to the
// lowest index, and experts never used with others end up in index order. It
// calls together about experts² times, and returns a permutation.
func CoactivationOrder(experts int, together func(a, b int) uint64) []int32 {
	if experts < 1 {
		return nil
	}
	used := make([]bool, experts)
	head, tail := bestPair(experts, together)
	used[head] = true
	front, back := []int32{}, []int32{int32(head)}
	if tail != head {
		used[tail] = true
		back = append(back, int32(tail))
	}
	left := nearestFrom(head, used, together)
	right := nearestFrom(tail, used, together)
	for len(front)+len(back) < experts {
		if left.count > right.count {
			head = left.expert
			used[head] = true
			front = append(front, int32(head))
			left = nearestFrom(head, used, together)
		} else {
			tail = right.expert
			used[tail] = true
			back = append(back, int32(tail))
			right = nearestFrom(tail, used, together)
		}
		if left.expert >= 0 && used[left.expert] {
			left = nearestFrom(head, used, together)
		}
		if right.expert >= 0 && used[right.expert] {
			right = nearestFrom(tail, used, together)
		}
	}
	order := make([]int32, 0, experts)
	for i := len(front) - 1; i >= 0; i-- {
		order = append(order, front[i])
	}
	return append(order, back...)
}

func bestPair(experts int, together func(a, b int) uint64) (int, int) {
	head, tail, best := 0, min(1, experts-1), uint64(0)
	for a := range experts {
		for b := a + 1; b < experts; b++ {
			if n := together(a, b); n > best {
				head, tail, best = a, b, n
			}
		}
	}
	return head, tail
}

// partner is the best expert to put beside another; -1 when none is left.
type partner struct {
	expert int
	count  uint64
}

func nearestFrom(expert int, used []bool, together func(a, b int) uint64) partner {
	best := partner{expert: -1}
	for e, taken := range used {
		if taken {
			continue
		}
		if n := together(expert, e); best.expert < 0 || n > best.count {
			best = partner{expert: e, count: n}
		}
	}
	return best
}
