package drive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
)

func TestModelledDrives(t *testing.T) {
	for _, tt := range []struct {
		name    string
		model   device.Model
		block   int64
		depth   int
		rate    float64
		latency time.Duration // of 64 KiB alone
	}{
		// Small blocks reach the bandwidth once their latencies overlap:
		// depth x 64 KiB within latency + 64 KiB / bandwidth.
		{"a drive with a queue", device.Model{Latency: 2 * ms, BytesPerSecond: 100e6}, 64 << 10, 4, 100e6, 2655360},
		{"a long way", device.Model{Latency: 5 * ms, BytesPerSecond: 100e6}, 64 << 10, 16, 100e6, 5655360},
		{"a fast drive", device.Model{Latency: 400 * time.Microsecond, BytesPerSecond: 2e9}, 64 << 10, 16, 2e9, 432768},
		// Without a queue only size helps: 4 MiB in 8 ms + 41.94 ms.
		{"a disk", device.Model{Latency: 8 * ms, BytesPerSecond: 100e6, Depth: 1}, 4 << 20, 1, 83.98e6, 8655360},
		// Two at once, each 10 ms: 256 KiB gives 52 MB/s, 4 MiB the whole bandwidth.
		{"a queue of two", device.Model{Latency: 10 * ms, BytesPerSecond: 400e6, Depth: 2}, 4 << 20, 2, 400e6, 10163840},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, err := Probe(t.Context(), onBlank(t, device.New(tt.model), 1<<30))
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if p.BlockBytes != tt.block || p.Depth != tt.depth || !near(p.BytesPerSecond, tt.rate, 0.005) {
				t.Errorf("%s: got blocks of %d at depth %d and %.4g bytes/s, want %d, %d and %.4g",
					tt.name, p.BlockBytes, p.Depth, p.BytesPerSecond, tt.block, tt.depth, tt.rate)
			}
			if got := p.LatencySeconds * 1e9; !near(got, float64(tt.latency), 1e-6) {
				t.Errorf("%s: got a latency of %.0f ns, want %d", tt.name, got, tt.latency)
			}
			if p.Kind != KindFile || p.FileBytes != 1<<30 || !p.Direct || p.Warning != "" {
				t.Errorf("%s: got %s of %d bytes, direct %v, warning %q, want a direct file of 1 GiB without one", tt.name, p.Kind, p.FileBytes, p.Direct, p.Warning)
			}
			if p.Seconds > 15 || p.Seconds < 5 {
				t.Errorf("%s: got %v s, want the most of 15", tt.name, p.Seconds)
			}
			if err := p.check(); err != nil {
				t.Errorf("%s: got a profile that Load would refuse: %v", tt.name, err)
			}
		})
	}
}

func TestEveryCellIsRightAndRowsEndWhenNothingIsGained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const latency, bandwidth = 2 * ms, 100e6
		o := onBlank(t, device.New(device.Model{Latency: latency, BytesPerSecond: bandwidth}), 1<<30)
		o.RecordBytes = 1_500_000
		p, err := Probe(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		rows := map[int64][]int{}
		for _, c := range p.Cells {
			rows[c.BlockBytes] = append(rows[c.BlockBytes], c.Depth)
			alone := latency.Seconds() + float64(c.BlockBytes)/bandwidth
			want := min(float64(c.Depth)*float64(c.BlockBytes)/alone, bandwidth)
			if !near(c.BytesPerSecond, want, 0.02) {
				t.Errorf("%d bytes at depth %d: got %.4g bytes/s, want %.4g", c.BlockBytes, c.Depth, c.BytesPerSecond, want)
			}
			if c.Depth == 1 && !near(c.P50Micros, alone*1e6, 1e-4) || c.P99Micros < c.P50Micros {
				t.Errorf("%d bytes at depth %d: got %v and %v µs, want %v", c.BlockBytes, c.Depth, c.P50Micros, c.P99Micros, alone*1e6)
			}
			if c.Rounds < 3 || c.Spread > 1.1 {
				t.Errorf("%d bytes at depth %d: got %d rounds that spread by %v, want 3 that agree", c.BlockBytes, c.Depth, c.Rounds, c.Spread)
			}
		}
		want := map[int64][]int{
			64 << 10: {1, 2, 4, 8, 16}, 256 << 10: {1, 2, 4, 8}, 1 << 20: {1, 2, 4, 8}, 1_503_232: {1, 2, 4, 8}, 4 << 20: {1, 2, 4},
		}
		if fmt.Sprint(rows) != fmt.Sprint(want) {
			t.Errorf("got depths %v, want %v", rows, want)
		}
	})
}

func TestASlowSpellDoesNotBendTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		spell := func(device.Op) device.Effect {
			if since := time.Since(began); since > 6*time.Second && since < 8*time.Second {
				return device.Effect{Delay: 30 * ms}
			}
			return device.Effect{}
		}
		o := onBlank(t, device.New(device.Model{Latency: 2 * ms, BytesPerSecond: 100e6, Rule: spell}), 1<<30)
		p, err := Probe(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if p.BlockBytes != 64<<10 || p.Depth != 4 || !near(p.BytesPerSecond, 100e6, 0.05) {
			t.Errorf("got blocks of %d at depth %d and %.4g bytes/s, want 65536, 4 and 1e8 as without the spell", p.BlockBytes, p.Depth, p.BytesPerSecond)
		}
		if !strings.Contains(strings.Join(p.Notes, "\n"), "rounds differed by more than 2x") {
			t.Errorf("got notes %q, want one that tells of the noise", p.Notes)
		}
	})
}

func TestTheSameDriveIsReadInTheSameOrder(t *testing.T) {
	var orders [2][]int64
	for i := range orders {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards orders[i]
			note := func(op device.Op) device.Effect {
				mu.Lock()
				defer mu.Unlock()
				if op.Seq < 3000 {
					orders[i] = append(orders[i], int64(op.Bytes))
				}
				return device.Effect{}
			}
			o := onBlank(t, device.New(device.Model{Latency: ms, Depth: 1, Rule: note}), 1<<30)
			o.Duration = 5 * time.Second
			if _, err := Probe(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		})
	}
	if len(orders[0]) < 2000 || !slices.Equal(orders[0], orders[1]) {
		t.Errorf("got %d and %d reads in another order, want the same", len(orders[0]), len(orders[1]))
	}
	if slices.IsSorted(orders[0]) {
		t.Error("got cells by size, want them shuffled")
	}
}

func TestTimeIsBounded(t *testing.T) {
	for _, rate := range []float64{1e3, 1e4, 1e5, 1e6, 1e7, 1e8} {
		synctest.Test(t, func(t *testing.T) {
			o := onBlank(t, device.New(device.Model{Latency: 10 * ms, BytesPerSecond: rate}), 1<<30)
			began := time.Now()
			p, err := Probe(t.Context(), o)
			if took := time.Since(began); took > defaultDuration {
				t.Errorf("%.0g bytes/s: got %v, want at most %v", rate, took, defaultDuration)
			}
			if rate == 1e3 {
				if !errors.Is(err, ErrNoAnswer) {
					t.Errorf("a read of 65 s: got %v, want %v", err, ErrNoAnswer)
				}
				time.Sleep(time.Minute) // until the read ends, and all with it
				return
			}
			if err != nil {
				t.Errorf("%.0g bytes/s: %v", rate, err)
			} else if !near(p.BytesPerSecond, rate, 0.1) {
				t.Errorf("%.0g bytes/s: got %.4g", rate, p.BytesPerSecond)
			}
		})
	}
}

func TestProgressGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := onBlank(t, device.New(device.Model{Latency: ms, BytesPerSecond: 100e6}), 1<<30)
		var seen []int64
		o.Progress = func(done, total int64) {
			if total != 12000 {
				t.Errorf("got a total of %d, want 12000 ms", total)
			}
			seen = append(seen, done)
		}
		if _, err := Probe(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if len(seen) < 50 || !slices.IsSorted(seen) || seen[len(seen)-1] > 12000 {
			t.Errorf("got %v, want a rise to at most 12000", seen)
		}
	})
}

func TestFolderIsLeftEmpty(t *testing.T) {
	mem := memfs.New(memfs.Options{Align: aligned})
	if err := mem.MkdirAll(testDir); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		p, err := Probe(t.Context(), Options{
			Path: testDir, FS: mem, Reads: oneDrive(mem, device.New(device.Model{Latency: ms, BytesPerSecond: 20e6})), SpaceBytes: minSpace, Duration: 4 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		wantEmpty(t, mem)
		if p.Kind != KindFolder || p.Path != testDir || p.FileBytes != minSpace || !near(p.BytesPerSecond, 20e6, 0.05) {
			t.Errorf("got %s %s of %d bytes at %.4g bytes/s, want the folder, 16 MiB and 2e7", p.Kind, p.Path, p.FileBytes, p.BytesPerSecond)
		}
	})
}

func TestFailuresLeaveNoFile(t *testing.T) {
	bad := errors.New("bad sector")
	full := errors.New("no space left")
	for _, tt := range []struct {
		name string
		rule faultfs.Rule
		want error
		word string
	}{
		{"no free space told", faultfs.Rule{Op: faultfs.Free, Err: bad}, bad, "ask for free space"},
		{"read-only", faultfs.Rule{Op: faultfs.Create, Err: bad}, bad, "choose a folder that can be written to"},
		{"full disk", faultfs.Rule{Op: faultfs.WriteAt, From: 3, Err: full}, full, "write 4194304 bytes at 8388608 of " + testDir},
		{"short write", faultfs.Rule{Op: faultfs.WriteAt, From: 2, Kind: faultfs.Short, Bytes: 5}, nil, "only 5 of 4194304 bytes"},
		{"sync", faultfs.Rule{Op: faultfs.Sync, Err: full}, full, "sync"},
		{"open", faultfs.Rule{Op: faultfs.Open, Name: ".outrider*", Err: bad}, bad, "open " + testDir},
		{"read", faultfs.Rule{Op: faultfs.ReadAt, From: 900, Err: bad}, bad, "of " + testDir},
		{"short read", faultfs.Rule{Op: faultfs.ReadAt, From: 40, Kind: faultfs.Short, Bytes: 99}, nil, "only 99 of"},
		{"silent read", faultfs.Rule{Op: faultfs.ReadAt, From: 40, Kind: faultfs.Silent}, layout.ErrSilentRead, "read "},
		{"close", faultfs.Rule{Op: faultfs.Close, Err: bad}, bad, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, mem, _ := folder(t, plain, tt.rule)
			_, err := Probe(t.Context(), o)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.word) {
				t.Errorf("%s: got %v, want %v that says %q", tt.name, err, tt.want, tt.word)
			}
			wantEmpty(t, mem)
		})
	}
}

func TestAPanicOfAFileIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, mem, _ := folder(t, device.Model{Latency: ms, BytesPerSecond: 100e6, Rule: device.Script(device.Effect{}, device.Effect{Panic: true})})
		if _, err := Probe(t.Context(), o); err == nil || !strings.Contains(err.Error(), "panic in a read of") {
			t.Errorf("got %v, want an error that tells of the panic", err)
		}
		wantEmpty(t, mem)
	})
}

func TestANameThatIsHeldIsRemovedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := faultfs.Rule{Op: faultfs.RemoveAll, To: 1}
		o, mem, faults := folder(t, plain, held)
		if _, err := Probe(t.Context(), o); err != nil {
			t.Error(err)
		}
		wantEmpty(t, mem)
		if n := faults.Calls(faultfs.RemoveAll); n != 2 {
			t.Errorf("got %d removals, want one in vain and one", n)
		}
		held.To = 0
		o, _, _ = folder(t, plain, held)
		if _, err := Probe(t.Context(), o); !errors.Is(err, faultfs.ErrInjected) || !strings.Contains(err.Error(), "remove the temporary file") {
			t.Errorf("a name that cannot be removed: got %v, want an error that tells so", err)
		}
	})
}

func TestCancelledProbeLeavesNoFile(t *testing.T) {
	cause := errors.New("enough")
	for _, tt := range []struct {
		name string
		rule faultfs.Rule
		at   time.Duration
	}{
		{"writing", faultfs.Rule{Op: faultfs.WriteAt, Kind: faultfs.Delay, Delay: 300 * ms}, 700 * ms},
		{"reading", faultfs.Rule{Op: faultfs.Mkdir}, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, mem, _ := folder(t, plain, tt.rule)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(tt.at, func() { cancel(cause) })
			began := time.Now()
			_, err := Probe(ctx, o)
			if took := time.Since(began); !errors.Is(err, cause) || took < tt.at || took > tt.at+500*ms {
				t.Errorf("%s: got %v after %v, want %v after %v and what was under way", tt.name, err, took, cause, tt.at)
			}
			wantEmpty(t, mem)
		})
	}
}

func TestAHangingCallEndsTheProbe(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.WriteAt, faultfs.Sync, faultfs.Open, faultfs.ReadAt} {
		for _, cancelled := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				hang := faultfs.Rule{Op: op, Name: ".outrider*", Kind: faultfs.Hang}
				if op == faultfs.ReadAt {
					hang.From = 50
				}
				o, mem, faults := folder(t, plain, hang)
				o.Duration = 5 * time.Second
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				want := o.Duration
				if cancelled {
					time.AfterFunc(time.Second, cancel)
					want = time.Second + cancelGrace
				}
				began := time.Now()
				_, err := Probe(ctx, o)
				if took := time.Since(began); !errors.Is(err, ErrNoAnswer) || took != want {
					t.Errorf("call %d, cancelled %v: got %v after %v, want %v after %v", op, cancelled, err, took, ErrNoAnswer, want)
				}
				faults.Release()
				synctest.Wait()
				wantEmpty(t, mem)
			})
		}
	}
}

// freeFS tells of some free space.
type freeFS struct {
	layout.WriteFS
	free int64
}

func (f freeFS) Free(string) (int64, error) { return f.free, nil }

func TestSpace(t *testing.T) {
	for _, tt := range []struct{ free, space, want int64 }{
		{1 << 40, 0, 1 << 30},
		{1 << 40, 20 * mib, 20 * mib},
		{100 * mib, 0, 24 * mib}, // a quarter, in whole writes
		{64 * mib, 0, 16 * mib},
	} {
		c := call{Options: Options{Path: testDir, FS: freeFS{free: tt.free}, SpaceBytes: tt.space}}
		if c.SpaceBytes == 0 {
			c.SpaceBytes = defaultSpace
		}
		if got, err := c.tempBytes(); got != tt.want || err != nil {
			t.Errorf("%d bytes free, at most %d: got %d, %v, want %d", tt.free, tt.space, got, err, tt.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		o, mem, _ := folder(t, plain)
		o.SpaceBytes = 20 * mib
		if p, err := Probe(t.Context(), o); err != nil || p.FileBytes != 20*mib {
			t.Errorf("20 MiB: got %+v, %v, want a file of that", p, err)
		}
		o.FS = freeFS{WriteFS: o.FS, free: 63 * mib}
		_, err := Probe(t.Context(), o)
		if !errors.Is(err, layout.ErrNoSpace) || !strings.Contains(err.Error(), "66060288 bytes are free") {
			t.Errorf("63 MiB free: got %v, want %v with the figures", err, layout.ErrNoSpace)
		}
		wantEmpty(t, mem)
	})
}

func TestSlowWritesMakeASmallerFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := faultfs.Rule{Op: faultfs.WriteAt, Kind: faultfs.Delay, Delay: time.Second}
		o, mem, _ := folder(t, plain, slow)
		p, err := Probe(t.Context(), o)
		if err != nil || p.FileBytes != 24*mib || p.Seconds > 15 {
			t.Errorf("got %+v, %v, want 24 MiB in the 6 s for writing", p, err)
		}
		wantEmpty(t, mem)
		slow.Delay = 2 * time.Second
		o, mem, _ = folder(t, plain, slow)
		if _, err := Probe(t.Context(), o); !errors.Is(err, ErrTime) || !strings.Contains(err.Error(), "allow a longer duration") {
			t.Errorf("got %v, want %v with the remedy", err, ErrTime)
		}
		wantEmpty(t, mem)
	})
}

func TestRefusals(t *testing.T) {
	mem := memfs.New(memfs.Options{})
	if err := mem.WriteFile("/small", make([]byte, 65535)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		opt  Options
		word string
	}{
		{"no path", Options{}, "need a path"},
		{"short", Options{Path: "/", Duration: time.Millisecond}, "a duration of 1ms, want 1s to 10m0s"},
		{"long", Options{Path: "/", Duration: time.Hour}, "a duration of 1h0m0s"},
		{"space", Options{Path: "/", SpaceBytes: 1}, "a temporary file of 1 bytes"},
		{"record", Options{Path: "/", RecordBytes: 1 << 40}, "records of 1099511627776 bytes"},
		{"negative record", Options{Path: "/", RecordBytes: -1}, "records of -1 bytes"},
		{"missing", Options{Path: "/missing", FS: mem}, "not exist"},
		{"small file", Options{Path: "/small", FS: mem}, "it has 65535 bytes, want at least 65536"},
	} {
		if _, err := Probe(t.Context(), tt.opt); err == nil || !strings.Contains(err.Error(), tt.word) || !strings.HasPrefix(err.Error(), "drive: ") {
			t.Errorf("%s: got %v, want an error that says %q", tt.name, err, tt.word)
		}
	}
}
