package prefetcher

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/layout"
)

var errDrive = errors.New("bad sector")

func TestFaultOnceIsHealed(t *testing.T) {
	tests := []struct {
		name   string
		effect device.Effect
		sums   device.Sums
		reads  int64
		sumErr int64
	}{
		{"error", device.Effect{Err: errDrive}, device.Summed, 3, 0},
		{"short", device.Effect{Short: 1}, device.Summed, 3, 0},
		{"end of file", device.Effect{Err: io.EOF}, device.Summed, 3, 0},
		{"silent, in place", device.Effect{Silent: true}, device.Unsummed, 3, 0},
		{"silent, store", device.Effect{Silent: true}, device.Summed, 3, 0},
		{"panic", device.Effect{Panic: true}, device.Summed, 3, 0},
		{"flipped", device.Effect{Flip: true}, device.Summed, 3, 1},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			model := pages
			model.Rule = device.Script(device.Effect{}, tt.effect)
			r := newRig(t, rigOptions{model: model, sums: tt.sums, Options: Options{Depth: 1, Block: 4096}})
			in := &inbox{rig: r}
			r.p.Demand(eid(2, 3), 0, in)
			time.Sleep(time.Second)
			if got := in.letters(); len(got) != 1 || got[0].err != nil {
				t.Errorf("%s: got %+v, want the right bytes", tt.name, got)
			}
			s := r.p.Stats()
			if r.reads() != tt.reads || s.Retries != 1 || s.ChecksumErrors != tt.sumErr || s.Failed != 0 {
				t.Errorf("%s: got %d reads, %d retries, %d checksum errors, %d failed, want %d 1 %d 0",
					tt.name, r.reads(), s.Retries, s.ChecksumErrors, s.Failed, tt.reads, tt.sumErr)
			}
			r.close()
		})
	}
}

func TestFaultTwiceGoesToExactlyTheWaiters(t *testing.T) {
	tests := []struct {
		name   string
		effect device.Effect
		is     error
		text   string
	}{
		{"error", device.Effect{Err: errDrive}, errDrive, "prefetcher: read layer 2 expert 3: lane-0.bin at offset 159744, 4096 bytes: bad sector (tried twice; check the drive)"},
		{"short", device.Effect{Short: 1}, ErrShort, "short read: 4095 of 4096 bytes"},
		{"silent", device.Effect{Silent: true}, ErrSilent, "read claimed success without touching the buffer"},
		{"panic", device.Effect{Panic: true}, ErrPanic, "panic while reading: device: panic asked for by the rule"},
		{"flipped", device.Effect{Flip: true}, ErrChecksum, "prefetcher: layer 2 expert 3, projection down: lane-0.bin at offset 159744: CRC-32C is "},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			// The second page of layer 2, expert 3: ordinal 19, two pages each.
			bad := int64(19*2+1) * 4096
			model := pages
			model.Rule = func(op device.Op) device.Effect {
				if op.Offset == bad {
					return tt.effect
				}
				return device.Effect{}
			}
			r := newRig(t, rigOptions{model: model, Options: Options{Depth: 2, Block: 4096}})
			a, b, other := &inbox{rig: r}, &inbox{rig: r}, &inbox{rig: r}
			r.p.Demand(eid(2, 3), 0, a)
			r.p.Demand(eid(2, 3), 1, b)
			r.p.Demand(eid(2, 4), 2, other)
			time.Sleep(time.Second)
			if got := other.letters(); len(got) != 1 || got[0].err != nil {
				t.Errorf("%s: who waits for another: got %+v, want no error", tt.name, got)
			}
			for _, in := range []*inbox{a, b} {
				got := in.letters()
				if len(got) != 1 || !errors.Is(got[0].err, tt.is) || !strings.Contains(got[0].err.Error(), tt.text) {
					t.Fatalf("%s: got %+v, want %q", tt.name, got, tt.text)
				}
			}
			var re *ReadError
			var ce *ChecksumError
			switch err := a.letters()[0].err; {
			case errors.As(err, &re):
				if re.Path != "lane-0.bin" || re.Offset != bad || re.Bytes != 4096 || re.ID != eid(2, 3) {
					t.Errorf("%s: got %+v, want lane-0.bin at %d, 4096 bytes, layer 2 expert 3", tt.name, re, bad)
				}
			case errors.As(err, &ce):
				if ce.Path != "lane-0.bin" || ce.Offset != bad || ce.Projection != "down" || ce.ID != eid(2, 3) {
					t.Errorf("%s: got %+v, want lane-0.bin at %d, down, layer 2 expert 3", tt.name, ce, bad)
				}
			default:
				t.Errorf("%s: got %T, want *ReadError or *ChecksumError", tt.name, err)
			}
			if r.cache.Resident(eid(2, 3)) {
				t.Errorf("%s: the failed expert is resident, want absent", tt.name)
			}
			r.close()
		})
	}
}

func TestRemovedDriveFailsAllAndHangsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: device.Model{Latency: time.Hour, Depth: 2}})
		in := &inbox{rig: r}
		for i := range 8 {
			r.p.Demand(eid(0, i), i, in)
		}
		time.Sleep(ms)
		r.drives[0].Remove()
		time.Sleep(ms)
		got := in.letters()
		if len(got) != 8 {
			t.Errorf("got %d answers, want 8", len(got))
		}
		for _, l := range got {
			if !errors.Is(l.err, device.ErrRemoved) {
				t.Errorf("tag %d: got %v, want %v", l.tag, l.err, device.ErrRemoved)
			}
		}
		r.close()
	})
}

func TestFailedSpeculationIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		model := pages
		model.Rule = device.Script(device.Effect{Err: errDrive}, device.Effect{Err: errDrive})
		r := newRig(t, rigOptions{model: model, Options: Options{
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}})
		r.p.Speculate(0, []Candidate{{eid(1, 0), 1, 1}})
		time.Sleep(time.Second)
		if s := r.p.Stats(); s.Failed != 1 || r.cache.Resident(eid(1, 0)) {
			t.Errorf("got failed %d, resident %v, want 1 false", s.Failed, r.cache.Resident(eid(1, 0)))
		}
		r.close()
		if got := log.String(); !strings.Contains(got, "level=DEBUG") || !strings.Contains(got, "bad sector") {
			t.Errorf("log: got %q, want a debug line with the cause", got)
		}
	})
}

// twisted is a source that lies about where experts are.
type twisted struct {
	layout.Source
	twist func(*layout.Placement)
}

func (s twisted) Locate(id layout.ExpertID, p *layout.Placement) error {
	err := s.Source.Locate(id, p)
	s.twist(p)
	return err
}

func TestImpossiblePlacements(t *testing.T) {
	tests := []struct {
		name  string
		twist func(*layout.Placement)
	}{
		{"too large", func(p *layout.Placement) { p.Bytes = 1 << 40 }},
		{"negative size", func(p *layout.Placement) { p.Bytes = -1 }},
		{"no such lane", func(p *layout.Placement) { p.Reads[0].Lane = 1 }},
		{"negative lane", func(p *layout.Placement) { p.Reads[0].Lane = -1 }},
		{"negative offset", func(p *layout.Placement) { p.Reads[0].Offset = -4096 }},
		{"beyond the slot", func(p *layout.Placement) { p.Reads[0].At = 4096 }},
		{"far beyond the slot", func(p *layout.Placement) { p.Reads[0].At = math.MaxInt64 }},
		{"before the slot", func(p *layout.Placement) { p.Reads[0].At = -1 }},
		{"endless", func(p *layout.Placement) { p.Reads[0].Bytes = math.MaxInt64 }},
		{"empty read", func(p *layout.Placement) { p.Reads[0].Bytes = 0 }},
		{"needs more than it reads", func(p *layout.Placement) { p.Reads[0].Need++ }},
		{"part beyond the slot", func(p *layout.Placement) { p.Parts[1].Bytes = math.MaxInt64 }},
		{"part before the slot", func(p *layout.Placement) { p.Parts[1].At = -1 }},
		{"panic", func(p *layout.Placement) { panic("lost") }},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigOptions{wrap: func(s layout.Source) layout.Source { return twisted{s, tt.twist} }})
			in := &inbox{rig: r}
			r.p.Demand(eid(0, 0), 0, in)
			time.Sleep(time.Second)
			want := ErrPlacement
			if tt.name == "panic" {
				want = ErrPanic
			}
			got := in.letters()
			if len(got) != 1 || !errors.Is(got[0].err, want) || !strings.Contains(got[0].err.Error(), "layer 0 expert 0") {
				t.Errorf("%s: got %+v, want %v for layer 0 expert 0", tt.name, got, want)
			}
			r.close()
		})
	}
}

func TestPlacementWithNothingToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{wrap: func(s layout.Source) layout.Source {
			return twisted{s, func(p *layout.Placement) { p.Reads, p.Parts = nil, nil }}
		}})
		// No inbox: there are no bytes to compare.
		answers := make(chan error, 1)
		r.p.Demand(eid(0, 0), 0, waiterFunc{func(l experts.Lease, err error) {
			if err == nil {
				err = l.Release()
			}
			answers <- err
		}})
		if err := <-answers; err != nil {
			t.Errorf("got %v, want nil", err)
		}
		r.close()
	})
}

type waiterFunc struct {
	f func(experts.Lease, error)
}

func (w waiterFunc) Arrived(_ int, l experts.Lease, err error) { w.f(l, err) }

func TestReadBeyondTheEndOfTheFile(t *testing.T) {
	got := cutBlocks(nil, &flight{}, []layout.Read{
		{Lane: 0, Offset: 0, Bytes: 12288, At: 0, Need: 5000},
		{Lane: 1, Offset: 8192, Bytes: 8192, At: 12288, Need: 8192},
		{Lane: 2, Offset: 0, Bytes: 4096, At: 20480, Need: 0},
	}, 4096)
	type place struct {
		lane                    int
		offset, at, bytes, need int64
	}
	want := []place{
		{lane: 0, offset: 0, at: 0, bytes: 4096, need: 4096},
		{lane: 1, offset: 8192, at: 12288, bytes: 4096, need: 4096},
		{lane: 0, offset: 4096, at: 4096, bytes: 4096, need: 904},
		{lane: 1, offset: 12288, at: 16384, bytes: 4096, need: 4096},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i, b := range got {
		if g := (place{b.lane, b.offset, b.at, b.bytes, b.need}); g != want[i] {
			t.Errorf("block %d: got %+v, want %+v", i, g, want[i])
		}
	}
}

// Data that happen to equal the canary are read twice, not refused.
func TestDataEqualToTheCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{sums: device.Unsummed})
		copy(r.p.canary[:], r.src.Want(eid(0, 0)))
		in := &inbox{rig: r}
		r.p.Demand(eid(0, 0), 0, in)
		time.Sleep(time.Second)
		if got := in.letters(); len(got) != 1 || got[0].err != nil || r.reads() != 2 {
			t.Errorf("got %+v in %d reads, want the bytes in 2", got, r.reads())
		}
		r.close()
	})
}
