package prefetcher

import (
	"fmt"

	"outrider/layout"
)

// spot is a place that a block can be read from.
type spot struct {
	lane   int
	copies bool // of the lane's second file
	offset int64
}

type blockState uint8

const (
	blockWaiting blockState = iota // for a worker, in its lane's line
	blockReading                   // or being checked
	blockEnded                     // there, or given up
)

// block is a piece of a flight: slot[at:at+bytes] from its spot, of which need
// bytes must arrive. Place and size are set when it is cut; the rest is guarded
// by Prefetcher.mu.
type block struct {
	f         *flight // while it is not doomed
	id        layout.ExpertID
	spot      // where it is, or will be, read
	other     spot
	twice     bool // other is a place of the same bytes
	at, bytes int64
	need      int64
	buf       []byte // where it goes: bytes long; set when it is put up

	state  blockState
	twin   bool    // it is read into the flight's twin
	doomed *orphan // nobody waits for it any more: it may only end
	hedged bool    // a second read of it was begun
}

// touches reports whether the block holds bytes of a part.
func (b *block) touches(p layout.Part) bool {
	return p.Bytes > 0 && b.at < p.At+p.Bytes && p.At < b.at+b.bytes
}

// swap changes the place of a block that lies twice.
func (b *block) swap() { b.spot, b.other = b.other, b.spot }

// checkPlacement finds what would make a read go outside of the slot. The source
// may be of anybody's making.
func checkPlacement(p *layout.Placement, slot int64, lanes []layout.Lane) error {
	if p.Bytes < 0 || p.Bytes > slot {
		return fmt.Errorf("%w: %d bytes for a slot of %d", ErrPlacement, p.Bytes, slot)
	}
	for i, r := range p.Reads {
		switch {
		case r.Lane < 0 || r.Lane >= len(lanes):
			return fmt.Errorf("%w: read %d of lane %d, there are %d", ErrPlacement, i, r.Lane, len(lanes))
		case r.Offset < 0 || r.Bytes < 1 || r.At < 0 || r.At > p.Bytes || r.Bytes > p.Bytes-r.At:
			return fmt.Errorf("%w: read %d of %d bytes at %d into %d of %d", ErrPlacement, i, r.Bytes, r.Offset, r.At, p.Bytes)
		case r.Need < 0 || r.Need > r.Bytes:
			return fmt.Errorf("%w: read %d needs %d of %d bytes", ErrPlacement, i, r.Need, r.Bytes)
		case r.Copy.Ok && (r.Copy.Lane < 0 || r.Copy.Lane >= len(lanes) || r.Copy.Lane == r.Lane ||
			lanes[r.Copy.Lane].Copies == nil || r.Copy.Offset < 0):
			return fmt.Errorf("%w: copy of read %d at %d of lane %d", ErrPlacement, i, r.Copy.Offset, r.Copy.Lane)
		}
	}
	if len(p.Parts) > maxParts {
		return fmt.Errorf("%w: %d parts, want at most %d", ErrPlacement, len(p.Parts), maxParts)
	}
	for i, part := range p.Parts {
		if part.At < 0 || part.Bytes < 0 || part.At > p.Bytes || part.Bytes > p.Bytes-part.At {
			return fmt.Errorf("%w: part %d of %d bytes at %d of %d", ErrPlacement, i, part.Bytes, part.At, p.Bytes)
		}
	}
	return nil
}

// maxParts is how many projections an expert may have: a bit each.
const maxParts = 64

// cutBlocks cuts the reads into blocks of at most size bytes, appended to dst.
// Blocks of the reads alternate, so that workers who take them in order spread
// over the lanes.
func cutBlocks(dst []block, f *flight, reads []layout.Read, size int64) []block {
	for from, more := int64(0), true; more; from += size {
		more = false
		for _, r := range reads {
			// Past Need is past the end of the file: nothing to read.
			if from >= r.Need {
				continue
			}
			n := min(size, r.Bytes-from)
			b := block{
				f: f, id: f.id, spot: spot{lane: r.Lane, offset: r.Offset + from}, at: r.At + from,
				bytes: n, need: min(n, r.Need-from),
			}
			if r.Copy.Ok {
				b.twice, b.other = true, spot{lane: r.Copy.Lane, copies: true, offset: r.Copy.Offset + from}
			}
			dst = append(dst, b)
			more = more || from+size < r.Need
		}
	}
	return dst
}

// aheadBlocks is how many blocks a large speculative read is cut into at least,
// so that a demand of a record of that size waits a twelfth longer for each that is
// before it.
const aheadBlocks = 12

// minAheadBlock is the smallest block that is still worth a request.
const minAheadBlock = 64 << 10

// aheadBlock is the size of blocks of a speculative read of so many bytes: a
// multiple of unit, to which all sizes are cut.
func aheadBlock(record, block, unit int64) int64 {
	n := max(record/aheadBlocks, minAheadBlock)
	n = (n + unit - 1) / unit * unit
	return min(n, block)
}
