package rawread_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/internal/dummystore"
	"outrider/internal/rawread"
	"outrider/layout"
)

var shape = layout.Shape{Layers: 2, Experts: 3, TopK: 1}

// several says that the files of all drives have a Reader.
var several bool

// TestMain runs all tests twice: by a goroutine for each read, and by one for all.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 {
		several = true
		if code = m.Run(); code != 0 {
			fmt.Fprintln(os.Stderr, "rawread: the tests failed on files with a Reader")
		}
	}
	os.Exit(code)
}

func newDrive(m device.Model) *device.Drive {
	m.Several = several
	return device.New(m)
}

func records(t *testing.T, bytes int64, drives ...*device.Drive) *device.Records {
	t.Helper()
	src, err := device.NewRecords(device.RecordsOptions{Shape: shape, Bytes: func(int) int64 { return bytes }, Drives: drives})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func ids(list ...int) []layout.ExpertID {
	out := make([]layout.ExpertID, len(list))
	for i, o := range list {
		out[i] = shape.ID(o)
	}
	return out
}

// watched notes the reads of a source's lanes in the order in which they begin.
type watched struct {
	layout.Source
	lanes []layout.Lane
	mu    sync.Mutex
	seen  []layout.Read
	bytes map[int64][]byte // by offset, of lane 0
}

type watchedFile struct {
	layout.File
	lane int
	w    *watched
}

func watch(src layout.Source) *watched {
	w := &watched{Source: src, bytes: map[int64][]byte{}}
	for i, lane := range src.Lanes() {
		w.lanes = append(w.lanes, layout.Lane{Path: lane.Path, File: watchedFile{lane.File, i, w}})
	}
	return w
}

func (w *watched) Lanes() []layout.Lane { return w.lanes }

func (f watchedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.seen = append(f.w.seen, layout.Read{Lane: f.lane, Offset: off, Bytes: int64(len(p)), Need: int64(n)})
	if f.lane == 0 {
		f.w.bytes[off] = bytes.Clone(p[:n])
	}
	return n, err
}

func TestRunReadsExactlyTheExtentsInOrder(t *testing.T) {
	w := watch(records(t, 10_000)) // slots of 12288 bytes
	list := ids(4, 0, 4)
	got, err := rawread.Run(t.Context(), rawread.Options{Source: w, Experts: list, Workers: 1, Block: 8192})
	if err != nil {
		t.Fatal(err)
	}
	if got.Bytes != 3*12288 || got.Reads != 6 || got.Experts != 3 || got.Direct {
		t.Errorf("got %+v, want 3 experts in 6 buffered reads of 36864 bytes", got)
	}
	var p layout.Placement
	at := 0
	for _, id := range list {
		if err := w.Locate(id, &p); err != nil {
			t.Fatal(err)
		}
		off := p.Reads[0].Offset
		for _, want := range []layout.Read{{Offset: off, Bytes: 8192}, {Offset: off + 8192, Bytes: 4096}} {
			if s := w.seen[at]; s.Offset != want.Offset || s.Bytes != want.Bytes {
				t.Errorf("read %d: got %d bytes at %d, want %d at %d", at, s.Bytes, s.Offset, want.Bytes, want.Offset)
			}
			at++
		}
		want := w.Source.(*device.Records).Want(id)
		if !bytes.HasPrefix(want, w.bytes[off]) {
			t.Errorf("%v: got other bytes than its own", id)
		}
	}
}

func TestRunUsesAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drive := newDrive(device.Model{Latency: 10 * time.Millisecond})
		got, err := rawread.Run(t.Context(), rawread.Options{
			Source: records(t, 4096, drive), Experts: ids(0, 1, 2, 3, 4, 5), Workers: 3})
		if err != nil || got.Duration != 20*time.Millisecond || drive.Stats().Peak != 3 {
			t.Errorf("got %v %v with %d at once, want 20ms with 3", got.Duration, err, drive.Stats().Peak)
		}
		if want := float64(6*4096) / 0.02; got.BytesPerSecond() != want {
			t.Errorf("got %v bytes a second, want %v", got.BytesPerSecond(), want)
		}
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(o rawread.Options) rawread.Report {
			o.Source = records(t, 4096, newDrive(device.Model{Latency: 10 * time.Millisecond}))
			o.Experts, o.Workers = ids(0, 1, 2, 3, 4, 5), 1
			got, err := rawread.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := run(rawread.Options{MaxBytes: 8192}); got.Bytes != 8192 || got.Experts != 2 {
			t.Errorf("at most 8192 bytes: got %+v, want 2 experts", got)
		}
		if got := run(rawread.Options{MaxBytes: 8193}); got.Experts != 3 {
			t.Errorf("at most 8193 bytes: got %+v, want the third expert finished", got)
		}
		if got := run(rawread.Options{MaxDuration: 25 * time.Millisecond}); got.Reads != 3 || got.Duration != 30*time.Millisecond {
			t.Errorf("at most 25ms: got %+v, want 3 reads in 30ms", got)
		}
		if got := run(rawread.Options{}); got.Experts != 6 {
			t.Errorf("no limit: got %+v, want all 6", got)
		}
	})
}

func TestContextEndsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		drive := newDrive(device.Model{Latency: 10 * time.Millisecond})
		time.AfterFunc(25*time.Millisecond, func() { cancel(cause) })
		got, err := rawread.Run(ctx, rawread.Options{Source: records(t, 4096, drive), Experts: ids(0, 1, 2, 3, 4, 5), Workers: 1})
		if !errors.Is(err, cause) || got.Reads != 3 || got.Duration != 30*time.Millisecond {
			t.Errorf("got %+v %v, want 3 reads and %v", got, err, cause)
		}
	})
}

func TestErrorsNameFileOffsetAndExpert(t *testing.T) {
	bad := errors.New("bad drive")
	tests := []struct {
		name   string
		effect device.Effect
		want   error
		words  []string
	}{
		{"failed", device.Effect{Err: bad}, bad, []string{"layer 0 expert 1", "at 4096 of lane-0.bin"}},
		{"short", device.Effect{Short: 5}, io.ErrUnexpectedEOF, []string{"4091 of 4096 bytes at 4096 of lane-0.bin"}},
		{"panic", device.Effect{Panic: true}, nil, []string{"panic in a read"}},
	}
	for _, tt := range tests {
		src := records(t, 4096, newDrive(device.Model{Rule: device.Script(device.Effect{}, tt.effect)}))
		_, err := rawread.Run(t.Context(), rawread.Options{Source: src, Experts: ids(0, 1, 2), Workers: 1})
		if err == nil || (tt.want != nil && !errors.Is(err, tt.want)) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			continue
		}
		for _, word := range tt.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: got %q, want it to say %q", tt.name, err, word)
			}
		}
	}
	_, err := rawread.Run(t.Context(), rawread.Options{Source: records(t, 4096), Experts: []layout.ExpertID{{Layer: 9}}})
	if err == nil || !strings.Contains(err.Error(), "layer 9") {
		t.Errorf("unknown expert: got %v, want an error that names it", err)
	}
}

// misplaced is a source whose answers lead out of its lanes.
type misplaced struct {
	layout.Source
	read layout.Read
}

func (m misplaced) Locate(_ layout.ExpertID, p *layout.Placement) error {
	p.Reads = append(p.Reads[:0], m.read)
	return nil
}

func TestRefusals(t *testing.T) {
	src := records(t, 4096)
	tests := []struct {
		name string
		opt  rawread.Options
		word string
	}{
		{"no source", rawread.Options{}, "need a source"},
		{"workers", rawread.Options{Source: src, Workers: -1}, "-1 workers"},
		{"block", rawread.Options{Source: src, Block: 5000}, "blocks of 5000"},
		{"large block", rawread.Options{Source: src, Block: 1 << 40}, "blocks of"},
		{"buffers", rawread.Options{Source: src, Block: 64 << 20, Workers: 1024}, "of buffers"},
		{"limit", rawread.Options{Source: src, MaxBytes: -1}, "limits of -1"},
		{"duration", rawread.Options{Source: src, MaxDuration: -1}, "limits of"},
		{"lane", rawread.Options{Source: misplaced{src, layout.Read{Lane: 7, Bytes: 1}}, Experts: ids(0)}, "lane 7"},
		{"need", rawread.Options{Source: misplaced{src, layout.Read{Bytes: 1, Need: 2}}, Experts: ids(0)}, "2 of 1 bytes"},
		{"offset", rawread.Options{Source: misplaced{src, layout.Read{Offset: -1, Bytes: 1}}, Experts: ids(0)}, "at -1"},
	}
	for _, tt := range tests {
		_, err := rawread.Run(t.Context(), tt.opt)
		if err == nil || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: got %v, want an error that says %q", tt.name, err, tt.word)
		}
	}
	if got, err := rawread.Run(t.Context(), rawread.Options{Source: src}); err != nil || got.Bytes != 0 || got.Experts != 0 {
		t.Errorf("no experts: got %+v %v, want nothing read", got, err)
	}
}

// On the system, a store is read directly where the file system allows it.
func TestRunOverAStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if _, err := dummystore.Build(t.Context(), dummystore.Options{Shape: shape, RecordBytes: 300_000, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	system, err := layout.OpenSystem(layout.SystemOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer system.Close()
	store, err := layout.OpenStore(system, dir, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	got, err := rawread.Run(t.Context(), rawread.Options{Source: store, Experts: ids(0, 1, 2, 3, 4, 5, 5, 4, 3), Workers: 4, Block: 65536})
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	var p layout.Placement
	for o := range shape.Count() {
		if err := store.Locate(shape.ID(o), &p); err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Reads {
			want += r.Need * int64(1+o/3) // the experts of layer 1 are listed twice
		}
	}
	direct := store.Lanes()[0].File.Direct() != layout.Alignment{}
	if got.Bytes != want || got.Experts != 9 || got.Direct != direct {
		t.Errorf("got %+v, want %d bytes of 9 experts, direct %v", got, want, direct)
	}
	t.Logf("direct %v, %.0f MB/s", got.Direct, got.BytesPerSecond()/1e6)
}
