package drive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"outrider/layout"
)

// minLaneTime is the least that the table of one lane needs.
const minLaneTime = time.Second

// probeLanes measures the lanes of a store one after another, each for its
// share of the time. A store of one lane has that lane's profile.
func (c *call) probeLanes(ctx context.Context, lanes []layout.Lane) (*Profile, error) {
	if share := c.Duration / time.Duration(len(lanes)); share < minLaneTime {
		return nil, fmt.Errorf("drive: %s: %w: %v for each of %d lanes, want at least %v: allow a longer duration", c.Path, ErrTime, share, len(lanes), minLaneTime)
	}
	profiles := make([]Profile, 0, len(lanes))
	for i, lane := range lanes {
		until := c.at(readShare * float64(i+1) / float64(len(lanes)))
		began := time.Now()
		p, err := c.measure(ctx, KindLane, target{path: lane.Path, file: lane.File, bytes: lane.File.Size()}, until)
		if err != nil {
			return nil, err
		}
		p.Format, p.Version, p.Seconds = profileFormat, profileVersion, time.Since(began).Seconds()
		profiles = append(profiles, *p)
	}
	if len(profiles) == 1 {
		profiles[0].Kind = KindStore
		return &profiles[0], nil
	}
	return together(profiles), nil
}

// together is what several lanes give.
func together(lanes []Profile) *Profile {
	p := &Profile{Kind: KindStore, Lanes: lanes, Direct: true, Engine: lanes[0].Engine}
	var warnings []error
	rates := map[string]float64{} // of each device
	for i, l := range lanes {
		p.FileBytes += l.FileBytes
		p.BlockBytes, p.Depth = max(p.BlockBytes, l.BlockBytes), max(p.Depth, l.Depth)
		p.LatencySeconds = max(p.LatencySeconds, l.LatencySeconds)
		if !l.Direct && p.Direct {
			p.Direct, p.Fallback = false, l.Fallback
		}
		if l.Engine != p.Engine {
			p.Engine = "mixed"
		}
		if l.Warning != "" {
			warnings = append(warnings, fmt.Errorf("%s: %s", l.Path, l.Warning))
		}
		device := l.Device.Number
		if device == "" {
			device = fmt.Sprintf("lane %d", i)
		}
		if _, shared := rates[device]; shared {
			p.Notes = append(p.Notes, fmt.Sprintf("%s lies on the same drive (%s) as another lane: their rates do not add up, and the drive's is counted once", l.Path, l.Device.Name))
		}
		rates[device] = max(rates[device], l.BytesPerSecond)
		for _, note := range l.Notes {
			if !slices.Contains(p.Notes, note) {
				p.Notes = append(p.Notes, note)
			}
		}
	}
	for _, rate := range rates {
		p.BytesPerSecond += rate
	}
	if err := errors.Join(warnings...); err != nil {
		p.Warning = err.Error()
	}
	return p
}
