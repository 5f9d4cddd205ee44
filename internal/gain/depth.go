package gain

import (
	"math"

	"outrider/layout"
	"outrider/layout/drive"
)

// enough is the share of a block size's best rate that a depth must reach.
const enough = 0.95

// RecordBytes is the size of the largest reads that experts of a checkpoint are read
// with: of its mean expert, unless that is read in several.
func RecordBytes(cp *layout.Checkpoint) int64 {
	total := int64(0)
	for l := range cp.Layers {
		total += expertBytes(cp, l)
	}
	return min(total/int64(max(1, len(cp.Layers))), readBlock)
}

// DepthOf is how many reads of that size a drive wants at once: the smallest depth that
// comes within 5 % of the best, of the measured size that is nearest. A profile
// without cells has one depth for all.
func DepthOf(p *drive.Profile, bytes int64) int {
	nearest, best := int64(0), 0.0
	far := func(block int64) float64 { return math.Abs(math.Log(float64(block) / float64(bytes))) }
	for _, c := range p.Cells {
		if nearest == 0 || far(c.BlockBytes) < far(nearest) {
			nearest, best = c.BlockBytes, 0
		}
		if c.BlockBytes == nearest {
			best = max(best, c.BytesPerSecond)
		}
	}
	depth := 0
	for _, c := range p.Cells {
		if c.BlockBytes == nearest && c.BytesPerSecond >= enough*best && (depth == 0 || c.Depth < depth) {
			depth = c.Depth
		}
	}
	if depth == 0 {
		return p.Depth
	}
	return depth
}
