package gain

import (
	"fmt"
	"math/rand/v2"

	"outrider/layout"
)

// leastBlocks is how many raw blocks a file is cut into at least, so that reads at
// random places are that.
const leastBlocks = 4

// blocks is a file cut into blocks of one size, each of which passes as an expert:
// the raw reader reads experts.
type blocks struct {
	layout.Source // the store whose first lane it is
	size          int64
	count         int
}

// newBlocks cuts the first lane of a source. Blocks are smaller than asked where
// the lane is small.
func newBlocks(source layout.Source, size int64) *blocks {
	file := source.Lanes()[0].File.Size()
	for size > minBlock && file/size < leastBlocks {
		size = max(minBlock, size/2/minBlock*minBlock)
	}
	return &blocks{Source: source, size: size, count: int(max(1, file/size))}
}

// Locate is one read of a block.
func (b *blocks) Locate(id layout.ExpertID, p *layout.Placement) error {
	if id.Layer != 0 || id.Index < 0 || int(id.Index) >= b.count {
		return fmt.Errorf("gain: no block %v", id)
	}
	need := min(b.size, b.Lanes()[0].File.Size()-int64(id.Index)*b.size)
	p.Bytes, p.Parts = b.size, p.Parts[:0]
	p.Reads = append(p.Reads[:0], layout.Read{Offset: int64(id.Index) * b.size, Bytes: b.size, Need: need})
	return nil
}

// some lists blocks at random places, of about so many bytes together.
func (b *blocks) some(random *rand.Rand, bytes int64) (ids []layout.ExpertID) {
	for range max(1, (bytes+b.size-1)/b.size) {
		ids = append(ids, layout.ExpertID{Index: int32(random.IntN(b.count))})
	}
	return ids
}
