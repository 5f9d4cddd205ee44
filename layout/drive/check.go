package drive

import (
	"errors"
	"fmt"
	"math"

	"outrider/layout"
)

// What a profile may say: far beyond what drives do, and near enough that no
// sum or product of it runs over.
const (
	maxDepth   = 1024
	maxRate    = 1e13 // bytes a second
	maxSeconds = 3600
	maxCells   = 1024
	maxNotes   = 1024
	maxText    = 4096
)

// check reports the first thing in a profile that no probe gives.
func (p *Profile) check() error {
	if err := p.checkOne(); err != nil || len(p.Lanes) == 0 {
		if err == nil && len(p.Cells) == 0 {
			return errors.New("it has neither cells nor lanes")
		}
		return err
	}
	if p.Kind != KindStore || len(p.Lanes) > layout.MaxLanes || len(p.Cells) > 0 {
		return fmt.Errorf("it is a %q of %d lanes and %d cells, want a store of at most %d lanes and no cells of its own", p.Kind, len(p.Lanes), len(p.Cells), layout.MaxLanes)
	}
	for i := range p.Lanes {
		l := &p.Lanes[i]
		if l.Kind != KindLane || len(l.Lanes) > 0 || len(l.Cells) == 0 {
			return fmt.Errorf("lane %d is a %q of %d lanes and %d cells, want a lane with cells", i, l.Kind, len(l.Lanes), len(l.Cells))
		}
		if err := l.checkOne(); err != nil {
			return fmt.Errorf("lane %d: %w", i, err)
		}
	}
	return nil
}

// checkOne checks all but the lanes.
func (p *Profile) checkOne() error {
	switch {
	case p.Format != profileFormat || p.Version != profileVersion:
		return fmt.Errorf("it is %.40q of version %d", p.Format, p.Version)
	case p.Kind != KindFolder && p.Kind != KindFile && p.Kind != KindStore && p.Kind != KindLane:
		return fmt.Errorf("kind is %.40q", p.Kind)
	case p.FileBytes < 1 || p.FileBytes > math.MaxInt64/layout.MaxLanes:
		return fmt.Errorf("file_bytes is %d", p.FileBytes)
	case !within(p.Seconds, 0, maxSeconds):
		return fmt.Errorf("seconds is %g, want 0 to %d", p.Seconds, maxSeconds)
	case !within(p.LatencySeconds, 0, maxSeconds):
		return fmt.Errorf("latency_seconds is %g, want 0 to %d", p.LatencySeconds, maxSeconds)
	case len(p.Cells) > maxCells || len(p.Notes) > maxNotes:
		return fmt.Errorf("it has %d cells and %d notes, want at most %d and %d", len(p.Cells), len(p.Notes), maxCells, maxNotes)
	}
	if err := checkSetting(p.BlockBytes, p.Depth, p.BytesPerSecond); err != nil {
		return err
	}
	for i, c := range p.Cells {
		if err := c.check(); err != nil {
			return fmt.Errorf("cell %d: %w", i, err)
		}
	}
	if _, ok := p.Cell(p.BlockBytes, p.Depth); !ok && len(p.Cells) > 0 {
		return fmt.Errorf("it advises blocks of %d bytes at depth %d, which is no cell of it", p.BlockBytes, p.Depth)
	}
	return p.checkTexts()
}

func (p *Profile) checkTexts() error {
	d := p.Device
	for _, text := range append([]string{p.Path, p.Fallback, p.Engine, d.FileSystem, d.Number, d.Name, d.Model, d.Scheduler, d.Link}, p.Notes...) {
		if len(text) > maxText {
			return fmt.Errorf("a text has %d bytes, want at most %d: %.40q…", len(text), maxText, text)
		}
	}
	if len(p.Warning) > maxText*(1+len(p.Lanes)) {
		return fmt.Errorf("the warning has %d bytes", len(p.Warning))
	}
	if d.LogicalBlockBytes < 0 || d.MaxRequestBytes < 0 || !within(d.LinkBytesPerSecond, 0, maxRate*layout.MaxLanes) {
		return fmt.Errorf("the device has blocks of %d bytes, requests of %d and a link of %g bytes a second", d.LogicalBlockBytes, d.MaxRequestBytes, d.LinkBytesPerSecond)
	}
	return nil
}

func (c Cell) check() error {
	if err := checkSetting(c.BlockBytes, c.Depth, c.BytesPerSecond); err != nil {
		return err
	}
	if c.Rounds < 1 || !within(c.Spread, 1, math.MaxFloat64) || !within(c.P50Micros, 0, maxSeconds*1e6) ||
		!within(c.P99Micros, c.P50Micros, maxSeconds*1e6) || !within(c.CPUSecondsPerGiB, 0, math.MaxFloat64) {
		return fmt.Errorf("%d rounds with spread %g, %g and %g µs, and %g processor seconds a GiB", c.Rounds, c.Spread, c.P50Micros, c.P99Micros, c.CPUSecondsPerGiB)
	}
	return nil
}

func checkSetting(block int64, depth int, rate float64) error {
	switch {
	case block < blockStep || block > 2*maxBlock || block%blockStep != 0:
		return fmt.Errorf("block_bytes is %d, want a multiple of %d up to %d", block, blockStep, 2*maxBlock)
	case depth < 1 || depth > maxDepth:
		return fmt.Errorf("depth is %d, want 1 to %d", depth, maxDepth)
	case !(rate > 0 && rate <= maxRate*layout.MaxLanes):
		return fmt.Errorf("bytes_per_second is %g, want more than 0 and at most %g", rate, float64(maxRate*layout.MaxLanes))
	}
	return nil
}

// within is false for what is no number.
func within(v, low, high float64) bool { return v >= low && v <= high }
