package refmodel

// pair is two neighbouring tokens that may be merged.
type pair struct{ left, right int32 }

// merge is what a pair becomes, and how early: lower ranks go first.
type merge struct{ rank, id int32 }

// bpe merges the bytes of one word into tokens. The zero value with the two
// tables set is ready; buffers are reused, so it serves one goroutine.
type bpe struct {
	single *[256]int32 // the token of each byte
	merges map[pair]merge

	symbols []symbol
	heap    []candidate
}

// symbol is one token of the word so far, linked to its neighbours by index; -1
// ends the chain.
type symbol struct{ id, prev, next int32 }

// candidate is a possible merge at a place. It is stale, and passed over, once
// either side has become another token.
type candidate struct {
	merge
	at   int32 // index of the left symbol
	pair pair
}

// append appends the tokens of word to ids. A heap keeps long words at
// n log n, so that a text without blanks cannot stall the caller.
func (b *bpe) append(ids []int32, word string) []int32 {
	b.symbols, b.heap = b.symbols[:0], b.heap[:0]
	last := int32(len(word)) - 1
	for i := range int32(len(word)) {
		next := i + 1
		if i == last {
			next = -1
		}
		b.symbols = append(b.symbols, symbol{id: b.single[word[i]], prev: i - 1, next: next})
	}
	for i := range last {
		b.consider(i)
	}
	for len(b.heap) > 0 {
		b.apply(b.pop())
	}
	for i := int32(0); i >= 0; i = b.symbols[i].next {
		ids = append(ids, b.symbols[i].id)
	}
	return ids
}

// apply carries out a merge if both its sides are still there.
func (b *bpe) apply(c candidate) {
	left := &b.symbols[c.at]
	if left.id != c.pair.left || left.next < 0 || b.symbols[left.next].id != c.pair.right {
		return
	}
	gone := &b.symbols[left.next]
	left.id, left.next = c.id, gone.next
	gone.id = -1
	if left.next >= 0 {
		b.symbols[left.next].prev = c.at
		b.consider(c.at)
	}
	if left.prev >= 0 {
		b.consider(left.prev)
	}
}

// consider queues the merge of the symbol at i with the next one, if there is such a merge.
func (b *bpe) consider(i int32) {
	p := pair{b.symbols[i].id, b.symbols[b.symbols[i].next].id}
	if m, ok := b.merges[p]; ok {
		b.push(candidate{merge: m, at: i, pair: p})
	}
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

func (b *bpe) push(c candidate) {
	h := append(b.heap, c)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
	b.heap = h
}

func (b *bpe) pop() candidate {
	h := b.heap
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	b.heap = h
	return top
}
