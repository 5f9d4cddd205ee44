package layout

import (
	"cmp"
	"math/bits"
	"slices"
)

// weightScale is the sum of the lanes' weights in whole numbers. Whole numbers
// make a plan the same on every processor.
const weightScale = 1 << 16

// spreader deals records out to lanes so that each lane's load stays close to
// its share at any time, and with it the load of every stripe.
type spreader struct {
	weights []int64 // in parts of total
	total   int64
	loads   []int64 // bytes dealt so far
	sum     int64   // of loads
	cursors []int64 // where the next piece of each lane may start
	rank    []int   // scratch
	share   []int64 // scratch
}

func newSpreader(lanes []PlanLane) *spreader {
	n := len(lanes)
	s := &spreader{
		weights: make([]int64, n), loads: make([]int64, n), cursors: make([]int64, n),
		rank: make([]int, n), share: make([]int64, n),
	}
	var sum float64
	for _, lane := range lanes {
		sum += lane.Weight
	}
	for i, lane := range lanes {
		s.weights[i] = max(1, int64(float64(lane.Weight/sum)*weightScale))
		s.total += s.weights[i]
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
		s.sum += bytes
	}
}

// cut says how many bytes of a record each lane gets. The slice is reused.
//
// What a lane lacks to its share of all bytes up to and with this record is its
// due. The lanes with the largest dues take part, as many as pieces of the
// least size fit; one whose due is less than half such a piece waits for a
// later record.
func (s *spreader) cut(form *Form) []int64 {
	clear(s.share)
	n := min(int64(len(s.share)), form.Bytes/alignUp(unitBytes, form.Align))
	if n < 2 || form.Align < cutAlign {
		s.share[s.leastLoaded(form.Bytes)] = form.Bytes
		return s.share
	}
	for i := range s.rank {
		s.rank[i] = i
	}
	slices.SortStableFunc(s.rank, func(a, b int) int { return cmp.Compare(s.due(b, form.Bytes), s.due(a, form.Bytes)) })
	for n > 1 && s.due(s.rank[n-1], form.Bytes) < unitBytes/2 {
		n--
	}
	if n == 1 {
		s.share[s.rank[0]] = form.Bytes
		return s.share
	}
	s.divide(form, s.rank[:n])
	return s.share
}

// divide gives every chosen lane the least piece, and the rest in proportion to
// what each still lacks; rounding goes to the first.
func (s *spreader) divide(form *Form, chosen []int) {
	unit := alignUp(unitBytes, form.Align)
	rest := form.Bytes - unit*int64(len(chosen))
	var lacking int64
	for _, lane := range chosen {
		lacking += max(0, s.due(lane, form.Bytes)-unit)
	}
	given := int64(0)
	for _, lane := range chosen {
		extra := int64(0)
		if lacking > 0 {
			part := float64(max(0, s.due(lane, form.Bytes)-unit)) / float64(lacking)
			extra = min(alignDown(int64(part*float64(rest)), form.Align), rest-given)
		}
		s.share[lane] = unit + extra
		given += extra
	}
	s.share[chosen[0]] += rest - given
}

func (s *spreader) due(lane int, bytes int64) int64 {
	all := s.sum + bytes
	return all/s.total*s.weights[lane] + all%s.total*s.weights[lane]/s.total - s.loads[lane]
}

// leastLoaded is the lane that would be done first with a record of this size.
func (s *spreader) leastLoaded(bytes int64) int {
	best := 0
	for lane := 1; lane < len(s.loads); lane++ {
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
