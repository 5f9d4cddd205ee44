package importer

import "outrider/trace"

// passLinks tells the sequences of SGLang's passes apart, which name no
// requests, by positions:
//
//   - a part of a pass that extends from position 0 begins a sequence;
//   - any other part must go on where exactly one open sequence ended (if it
//     extends, one that was not decoded yet), otherwise it is unclear whose it is,
//     and so are all sequences.
//
// The engine decodes all running sequences in every decoding pass: one that was
// decoded before and is missing in such a pass has ended.
type passLinks struct {
	next    int64 // number of the next sequence
	open    []*linkedSequence
	unclear bool
}

type linkedSequence struct {
	id, end int64
	decoded bool // its last part was decoded
	here    bool // it has a part in the pass at hand
}

func newPassLinks() *passLinks { return &passLinks{} }

// maxOpen bounds what is searched for each part.
const maxOpen = 1024

// pass answers with the sequence of each token, nil once it is unclear.
func (k *passLinks) pass(p *sglangPass) []int64 {
	parts := k.parts(p)
	if parts == nil && len(p.tokens) > 0 {
		k.unclear = true
	}
	if k.unclear {
		return nil
	}
	for _, s := range k.open {
		s.here = false
	}
	owners := make([]int64, 0, len(p.tokens))
	for _, n := range parts {
		at := len(owners)
		s := k.owner(p, p.positions[at])
		if s == nil || len(k.open) > maxOpen {
			k.unclear = true
			return nil
		}
		s.end, s.decoded, s.here = p.positions[at]+n, p.phase == trace.Decode, true
		for range n {
			owners = append(owners, s.id)
		}
	}
	if p.phase == trace.Decode {
		k.close()
	}
	return owners
}

// parts are the lengths of the pass's sequences; nil where they are not told.
func (k *passLinks) parts(p *sglangPass) []int64 {
	if p.phase == trace.PhaseUnknown || p.positions == nil {
		return nil
	}
	parts := p.extend
	if p.phase == trace.Decode {
		parts = make([]int64, len(p.tokens))
		for i := range parts {
			parts[i] = 1
		}
	}
	at := 0
	for _, n := range parts {
		if n < 1 || n > int64(len(p.tokens)-at) {
			return nil
		}
		for i := range int(n) {
			if p.positions[at+i] != p.positions[at]+int64(i) || p.positions[at] < 0 {
				return nil
			}
		}
		at += int(n)
	}
	if at != len(p.tokens) {
		return nil
	}
	return parts
}

// owner is the sequence that a part starting at a position belongs to.
func (k *passLinks) owner(p *sglangPass, start int64) *linkedSequence {
	if start == 0 && p.phase == trace.Prefill {
		s := &linkedSequence{id: k.next}
		k.next++
		k.open = append(k.open, s)
		return s
	}
	var found *linkedSequence
	for _, s := range k.open {
		if s.end == start && !s.here && (p.phase == trace.Decode || !s.decoded) {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

// close forgets the sequences that ended.
func (k *passLinks) close() {
	kept := k.open[:0]
	for _, s := range k.open {
		if s.here || !s.decoded {
			kept = append(kept, s)
		}
	}
	k.open = kept
}
