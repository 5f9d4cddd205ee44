package layout

import (
	"cmp"
	"math/bits"
	"slices"
)

// weightScale is the sum of the lanes' weights in whole numbers. Whole numbers
// make a plan the same on every processor.
const weightScale = 1 << 16

// wholeSlack is how much longer a whole record may take on the lane that holds it
// than on the fastest one, so that small records spread over lanes of similar speed.
const wholeSlack = 2

// spreader deals records out to lanes so that each lane's load stays close to
// its share at any time, and with it the load of every stripe. No piece takes
// its lane longer than the whole record would take the fastest lane: a slow lane
// helps or stands aside, it never makes anybody wait.
type spreader struct {
	weights []int64 // of about weightScale in all
	fastest int64   // the largest of them
	loads   []int64 // bytes dealt so far
	targets []int64 // bytes that each lane should have by now
	cursors []int64 // where the next piece of each lane may start
	rank    []int   // scratch
	share   []int64 // scratch
}

func newSpreader(lanes []PlanLane) *spreader {
	n := len(lanes)
	s := &spreader{
		weights: make([]int64, n), loads: make([]int64, n), targets: make([]int64, n), cursors: make([]int64, n),
		rank: make([]int, n), share: make([]int64, n),
	}
	var sum float64
	for _, lane := range lanes {
		sum += lane.Weight
	}
	for i, lane := range lanes {
		s.weights[i] = max(1, int64(float64(lane.Weight/sum)*weightScale))
		s.fastest = max(s.fastest, s.weights[i])
	}
	return s
}

// placeRecords fills the plan's table of pieces and its sums.
func (p *Plan) placeRecords() {
	s := newSpreader(p.Lanes)
	p.table.pieces = make([]piece, p.table.rows()*len(p.Lanes))
	for row := range p.table.rows() {
		form := p.table.form(row)
		s.deal(form, p.table.piecesOf(row))
		p.DataBytes += form.DataBytes()
	}
	p.PaddingBytes = -p.DataBytes
	for i := range p.Lanes {
		p.Lanes[i].Size = alignUp(s.cursors[i], laneAlign)
		p.PaddingBytes += p.Lanes[i].Size
	}
}

// deal gives each lane its piece of the next record.
func (s *spreader) deal(form *Form, pieces []piece) {
	shares := s.cut(form)
	for lane, bytes := range shares {
		if bytes == 0 {
			continue
		}
		start := alignUp(s.cursors[lane], form.Align)
		pieces[lane] = piece{Offset: start, Bytes: bytes}
		s.cursors[lane] = start + bytes
		s.loads[lane] += bytes
	}
}

// cut says how many bytes of a record each lane gets. The slice is reused.
//
// What a lane lacks to its target, this record included, is its due. The lanes
// with the largest dues take part, as many as pieces of the least size fit; one
// whose due is less than half such a piece waits for a later record.
func (s *spreader) cut(form *Form) []int64 {
	clear(s.share)
	unit := alignUp(unitBytes, form.Align)
	able := s.able(func(lane int) bool { return s.limit(lane, form) >= unit })
	n := int(min(int64(len(able)), form.Bytes/unit))
	if n < 2 || form.Align < cutAlign {
		able = s.able(s.similar)
		s.expect(able, form.Bytes)
		s.share[s.leastLoaded(able, form.Bytes)] = form.Bytes
		return s.share
	}
	s.expect(able, form.Bytes)
	slices.SortStableFunc(able, func(a, b int) int { return cmp.Compare(s.due(b), s.due(a)) })
	most := n
	for n > 1 && s.due(able[n-1]) < unitBytes/2 {
		n--
	}
	s.divide(form, unit, s.withFastest(able, n, most, form))
	return s.share
}

// able lists the lanes for which ok holds. The slice is reused.
func (s *spreader) able(ok func(lane int) bool) []int {
	s.rank = s.rank[:0]
	for lane := range s.weights {
		if ok(lane) {
			s.rank = append(s.rank, lane)
		}
	}
	return s.rank
}

// similar reports whether a lane may hold whole records. Weights have been rounded
// down: one of exactly half the largest is still similar.
func (s *spreader) similar(lane int) bool { return wholeSlack*(s.weights[lane]+1) > s.fastest }

// limit is the largest piece of a record that a lane reads in the time that the
// fastest lane takes for all of it.
func (s *spreader) limit(lane int, form *Form) int64 {
	if s.weights[lane] == s.fastest {
		return form.Bytes
	}
	return alignDown(form.Bytes*s.weights[lane]/s.fastest, form.Align)
}

// expect adds a record to the targets of the lanes that may hold some of it.
func (s *spreader) expect(able []int, bytes int64) {
	var sum int64
	for _, lane := range able {
		sum += s.weights[lane]
	}
	for _, lane := range able {
		s.targets[lane] += bytes * s.weights[lane] / sum
	}
}

func (s *spreader) due(lane int) int64 { return s.targets[lane] - s.loads[lane] }

// withFastest returns the first n lanes of a ranking, at most most, and sees to it
// that they can hold the record within their limits: one of the fastest can hold
// whatever is left.
func (s *spreader) withFastest(ranked []int, n, most int, form *Form) []int {
	var room int64
	for _, lane := range ranked[:n] {
		room += s.limit(lane, form)
	}
	if room >= form.Bytes {
		return ranked[:n]
	}
	n = min(n+1, most)
	at := n + slices.IndexFunc(ranked[n-1:], func(lane int) bool { return s.weights[lane] == s.fastest }) - 1
	ranked[n-1], ranked[at] = ranked[at], ranked[n-1]
	return ranked[:n]
}

// divide gives every chosen lane the least piece, and the rest in proportion to
// what each still lacks, up to its limit; what is left goes to the first with room.
func (s *spreader) divide(form *Form, unit int64, chosen []int) {
	rest := form.Bytes - unit*int64(len(chosen))
	var lacking int64
	for _, lane := range chosen {
		lacking += max(0, s.due(lane)-unit)
	}
	left := rest
	for _, lane := range chosen {
		s.share[lane] = unit
		if lacking > 0 {
			part := float64(max(0, s.due(lane)-unit)) / float64(lacking)
			extra := min(alignDown(int64(part*float64(rest)), form.Align), left, s.limit(lane, form)-unit)
			s.share[lane] += extra
			left -= extra
		}
	}
	for _, lane := range chosen {
		extra := min(left, s.limit(lane, form)-s.share[lane])
		s.share[lane] += extra
		left -= extra
	}
}

// leastLoaded is the lane of several that would be done first with bytes more.
func (s *spreader) leastLoaded(lanes []int, bytes int64) int {
	best := lanes[0]
	for _, lane := range lanes[1:] {
		if s.doneBefore(lane, best, bytes) {
			best = lane
		}
	}
	return best
}

// doneBefore compares load over weight of two lanes without rounding.
func (s *spreader) doneBefore(a, b int, bytes int64) bool {
	hiA, loA := bits.Mul64(uint64(s.loads[a]+bytes), uint64(s.weights[b]))
	hiB, loB := bits.Mul64(uint64(s.loads[b]+bytes), uint64(s.weights[a]))
	return hiA < hiB || (hiA == hiB && loA < loB)
}
