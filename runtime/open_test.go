package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/drive"
	"outrider/router"
	"outrider/runtime"
)

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(text, []byte("this is no model at all, but longer than a header"), 0o644); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	online, stale := newOnline(t), leastStale(t, modelShape)
	const budget = 8 << 20
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		path    string
		options runtime.Options
		is      error
		words   []string
	}{
		{"missing", t.Context(), filepath.Join(dir, "nowhere.gguf"), runtime.Options{BudgetBytes: budget}, os.ErrNotExist, []string{"nowhere.gguf"}},
		{"no checkpoint", t.Context(), text, runtime.Options{BudgetBytes: budget}, checkpoint.ErrUnknown, []string{"notes.txt", "GGUF"}},
		{"no store", t.Context(), dir, runtime.Options{BudgetBytes: budget}, layout.ErrNotStore, []string{dir}},
		{"budget below the floor", t.Context(), modelPath, runtime.Options{BudgetBytes: 64 << 10}, experts.ErrBelowFloor, []string{"65536", "needs"}},
		{"negative budget", t.Context(), modelPath, runtime.Options{BudgetBytes: -1}, nil, []string{"budget is -1"}},
		{"unknown rule", t.Context(), modelPath, runtime.Options{Keep: 9}, nil, []string{"eviction rule 9"}},
		{"predictor without use", t.Context(), modelPath, runtime.Options{Keep: runtime.KeepLRU, Predictor: online, NoSpeculation: true}, nil, []string{"leave it out"}},
		{"two rules", t.Context(), modelPath, runtime.Options{Keep: runtime.KeepLRU, Order: stale}, nil, []string{"two eviction rules"}},
		{"far horizon", t.Context(), modelPath, runtime.Options{Horizon: 65}, nil, []string{"horizon is 65"}},
		{"ended context", ended, modelPath, runtime.Options{}, context.Canceled, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt, err := runtime.Open(tt.ctx, tt.path, tt.options)
			if err == nil {
				rt.Close()
				t.Fatal("opened, want an error")
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %v", err, tt.is)
			}
			for _, word := range tt.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}

// A budget under one layer of one token is refused with the bytes that are needed,
// and those bytes are enough; one under a whole token is warned about, with both.
func TestOpenNamesFloorAndCycle(t *testing.T) {
	probe, err := runtime.Open(t.Context(), modelPath, runtime.Options{BudgetBytes: 8 << 20, FixedBudget: true})
	if err != nil {
		t.Fatal(err)
	}
	floor, cycle := probe.Stats().Memory.Floor, probe.Stats().Memory.Cycle
	probe.Close()
	for _, tt := range []struct {
		budget        int64
		opens, warned bool
	}{
		{floor - 1, false, false}, {floor, true, true}, {cycle - 1, true, true}, {cycle, true, false},
	} {
		var log bytes.Buffer
		o := runtime.Options{BudgetBytes: tt.budget, FixedBudget: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		rt, err := runtime.Open(t.Context(), modelPath, o)
		if err == nil {
			rt.Close()
		} else if !errors.Is(err, experts.ErrBelowFloor) || !strings.Contains(err.Error(), fmt.Sprintf("needs %d", floor)) {
			t.Errorf("budget %d: got %v, want ErrBelowFloor and the %d bytes needed", tt.budget, err, floor)
		}
		warned := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), fmt.Sprintf("cycle_bytes=%d floor_bytes=%d", cycle, floor))
		if (err == nil) != tt.opens || warned != tt.warned {
			t.Errorf("budget %d: opened %t, warned %t; want %t and %t:\n%s", tt.budget, err == nil, warned, tt.opens, tt.warned, log.String())
		}
	}
}

// modelShape is that of the model in testdata.
var modelShape = layout.Shape{Layers: 8, Experts: 32, TopK: 4}

func newOnline(t *testing.T) router.Predictor {
	t.Helper()
	online, err := router.New("online", modelShape)
	if err != nil {
		t.Fatal(err)
	}
	return online
}

// Nothing may be switched off without a word: the log tells what is in effect.
func TestOpenLogsTheEffectiveConfiguration(t *testing.T) {
	for _, tt := range []struct {
		options runtime.Options
		want    []string
	}{
		{runtime.Options{BudgetBytes: 8 << 20}, []string{"budget_bytes=8388608", "forecast=online", "speculation=true", "horizon=auto", "engine=", "direct=", "placement=pooled", "locked=false", "depth=default", "block_bytes=default"}},
		{runtime.Options{BudgetBytes: 8 << 20, Depth: 3, Block: 64 << 10, FixedBudget: true}, []string{"depth=3", "block_bytes=65536", "budget_follows_pressure=false"}},
		{runtime.Options{BudgetBytes: 8 << 20, Engine: layout.PreadEngine, Drive: &drive.Profile{Path: "nvme", Depth: 5, BlockBytes: 1 << 20, Warning: "this was memory"}},
			[]string{"depth=5", "block_bytes=1048576", "this was memory"}},
		{runtime.Options{BudgetBytes: 8 << 20, NoSpeculation: true}, []string{"forecast=online", "speculation=false"}},
		{runtime.Options{BudgetBytes: 8 << 20, Keep: runtime.KeepLRU, Buffered: true}, []string{"forecast=none", "keep=lru", "speculation=false", "direct=false"}},
		{runtime.Options{BudgetBytes: 8 << 20, Keep: runtime.KeepLRU, Predictor: newOnline(t)}, []string{"forecast=online", "keep=lru", "speculation=true"}},
		{runtime.Options{BudgetBytes: 1 << 20}, []string{"below one token's cycle"}},
		{runtime.Options{}, []string{"budget chosen", "reason="}},
	} {
		var log bytes.Buffer
		tt.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		rt, err := runtime.Open(t.Context(), modelPath, tt.options)
		if err != nil {
			t.Fatal(err)
		}
		rt.Close()
		for _, want := range tt.want {
			if !strings.Contains(log.String(), want) {
				t.Errorf("options %+v: the log does not say %s:\n%s", tt.options, want, log.String())
			}
		}
	}
}

// Preload fills the budget and no more, and counts as no use.
func TestPreload(t *testing.T) {
	for _, experts := range []int{3, 20, 64} {
		m := open(t, experts, device.Model{}, runtime.Options{})
		if err := m.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := m.Stats()
		if got := st.Memory.Used; got != int64(experts)*slotBytes {
			t.Errorf("%d experts of room: %d bytes in use, want %d", experts, got, experts*slotBytes)
		}
		if st.Lookups != 0 || st.Stall != 0 || st.Memory.Leases != 0 {
			t.Errorf("counted %d lookups, %v stall, %d leases; want none", st.Lookups, st.Stall, st.Memory.Leases)
		}
		m.Close()
	}
}

func TestRatesOfAnUnusedRuntimeAreZero(t *testing.T) {
	var st runtime.Stats
	if got := fmt.Sprint(st.HitRate(), st.StallPerToken()); got != "0 0s" {
		t.Errorf("an unused runtime's rates: got %q, want zeros", got)
	}
}
