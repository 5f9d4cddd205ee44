package device

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outrider/layout"
)

const ms = time.Millisecond

// readAll starts n reads of size bytes at once and returns when each ended.
func readAll(t *testing.T, f layout.File, n, size int) []time.Duration {
	t.Helper()
	start := time.Now()
	took := make([]time.Duration, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if got, err := f.ReadAt(make([]byte, size), 0); got != size || err != nil {
				t.Errorf("read: got %d %v, want %d nil", got, err, size)
			}
			took[i] = time.Since(start)
		})
	}
	wg.Wait()
	return took
}

func TestTiming(t *testing.T) {
	tests := []struct {
		name  string
		model Model
		reads int
		last  time.Duration
	}{
		{"no time", Model{}, 4, 0},
		{"latency overlaps", Model{Latency: 5 * ms}, 4, 5 * ms},
		{"latency in a queue of two", Model{Latency: 5 * ms, Depth: 2}, 4, 10 * ms},
		{"transfers follow each other", Model{BytesPerSecond: 1e6}, 4, 4 * ms},
		{"both", Model{BytesPerSecond: 1e6, Latency: 5 * ms}, 4, 9 * ms},
		{"both, one at a time", Model{BytesPerSecond: 1e6, Latency: 5 * ms, Depth: 1}, 4, 24 * ms},
		{"stall", Model{Rule: Stall(1, 7*ms, 1)}, 4, 7 * ms},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			d := New(tt.model)
			f := d.File(&memory{data: make([]byte, 1000)})
			var last time.Duration
			for _, took := range readAll(t, f, tt.reads, 1000) {
				last = max(last, took)
			}
			if last != tt.last {
				t.Errorf("%s: got the last after %v, want %v", tt.name, last, tt.last)
			}
			if s := d.Stats(); s.Reads != int64(tt.reads) || s.Bytes != int64(tt.reads)*1000 || s.Peak > tt.reads {
				t.Errorf("%s: got %+v, want %d reads of 1000 bytes", tt.name, s, tt.reads)
			}
		})
	}
}

func TestFilesShareTheirDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Model{BytesPerSecond: 1e6})
		a, b := d.File(&memory{data: make([]byte, 1000)}), d.File(&memory{data: make([]byte, 1000)})
		start := time.Now()
		var wg sync.WaitGroup
		for _, f := range []layout.File{a, b} {
			wg.Go(func() { f.ReadAt(make([]byte, 1000), 0) })
		}
		wg.Wait()
		if got := time.Since(start); got != 2*ms {
			t.Errorf("two files on one drive: got %v, want 2ms", got)
		}
	})
}

func TestEffects(t *testing.T) {
	bad := errors.New("bad")
	data := []byte{1, 2, 3, 4}
	tests := []struct {
		name   string
		effect Effect
		n      int
		err    error
		buf    []byte
	}{
		{"none", Effect{}, 4, nil, []byte{1, 2, 3, 4}},
		{"error", Effect{Err: bad}, 0, bad, []byte{9, 9, 9, 9}},
		{"short", Effect{Short: 1}, 3, io.ErrUnexpectedEOF, []byte{1, 2, 3, 9}},
		{"shorter than nothing", Effect{Short: 9}, 0, io.ErrUnexpectedEOF, []byte{9, 9, 9, 9}},
		{"silent", Effect{Silent: true}, 4, nil, []byte{9, 9, 9, 9}},
		{"flip", Effect{Flip: true}, 4, nil, []byte{^byte(1), 2, 3, 4}},
	}
	for _, tt := range tests {
		f := New(Model{Rule: Script(tt.effect)}).File(&memory{data: data})
		buf := []byte{9, 9, 9, 9}
		n, err := f.ReadAt(buf, 0)
		if n != tt.n || !errors.Is(err, tt.err) || !bytes.Equal(buf, tt.buf) {
			t.Errorf("%s: got %d %v %v, want %d %v %v", tt.name, n, err, buf, tt.n, tt.err, tt.buf)
		}
		if n, err := f.ReadAt(buf, 0); n != 4 || err != nil || !bytes.Equal(buf, data) {
			t.Errorf("%s, second read: got %d %v %v, want the data", tt.name, n, err, buf)
		}
		buf = []byte{9, 9, 9, 9}
		d := New(Model{Rule: Script(tt.effect)})
		n, err = layout.ReadV(d.File(&memory{data: data}), [][]byte{nil, buf[:1], buf[1:3], buf[3:]}, 0)
		if n != tt.n || !errors.Is(err, tt.err) || !bytes.Equal(buf, tt.buf) {
			t.Errorf("%s, vector: got %d %v %v, want %d %v %v", tt.name, n, err, buf, tt.n, tt.err, tt.buf)
		}
		if s := d.Stats(); s.Reads != 1 || s.Bytes != 4 {
			t.Errorf("%s, vector: got %+v, want one read of 4 bytes", tt.name, s)
		}
	}
}

// A vector takes the time of one read, whatever the number of its buffers.
func TestVectorIsOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Model{Latency: 5 * ms, BytesPerSecond: 1e6}).File(&memory{data: make([]byte, 4000)})
		buf, start := make([]byte, 4000), time.Now()
		if n, err := layout.ReadV(f, [][]byte{buf[:1000], buf[1000:1500], buf[1500:]}, 0); n != 4000 || err != nil {
			t.Errorf("got %d bytes and %v, want 4000", n, err)
		}
		if took := time.Since(start); took != 9*ms {
			t.Errorf("got %v, want 9ms", took)
		}
	})
}

// A file on a drive says what the file below says of itself.
func TestFileKeepsItsName(t *testing.T) {
	f := New(Model{}).File(named{})
	if layout.Engine(f) != "fast" || layout.FallbackReason(f) != "because" {
		t.Errorf("got %q and %q, want those of the file below", layout.Engine(f), layout.FallbackReason(f))
	}
}

type named struct{}

func (named) ReadAt(p []byte, off int64) (int, error) { return 0, nil }
func (named) Size() int64                             { return 0 }
func (named) Direct() layout.Alignment                { return layout.Alignment{} }
func (named) Close() error                            { return nil }
func (named) Engine() string                          { return "fast" }
func (named) FallbackReason() string                  { return "because" }

func TestPanicEffectLeavesTheDriveUsable(t *testing.T) {
	f := New(Model{Depth: 1, Rule: Script(Effect{Panic: true})}).File(&memory{data: []byte{1}})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("got no panic, want one")
			}
		}()
		f.ReadAt(make([]byte, 1), 0)
	}()
	if n, err := f.ReadAt(make([]byte, 1), 0); n != 1 || err != nil {
		t.Errorf("read after the panic: got %d %v, want 1 nil", n, err)
	}
}

func TestRulesAreDeterministicAndAddUp(t *testing.T) {
	bad := errors.New("bad")
	rule := All(Stall(3, ms, 7), Stall(2, ms, 7), Fail(4, bad, 9))
	again := All(Stall(3, ms, 7), Stall(2, ms, 7), Fail(4, bad, 9))
	stalls, fails := 0, 0
	for seq := range int64(1000) {
		a, b := rule(Op{Seq: seq}), again(Op{Seq: seq})
		if a != b {
			t.Fatalf("read %d: got %+v and %+v, want the same", seq, a, b)
		}
		stalls += int(a.Delay / ms)
		if a.Err != nil {
			fails++
		}
	}
	if stalls < 700 || stalls > 960 || fails < 180 || fails > 320 {
		t.Errorf("of 1000 reads: got %d stalls and %d failures, want about 833 and 250", stalls, fails)
	}
}

func TestRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Model{Latency: time.Hour, Depth: 1})
		f := d.File(&memory{data: make([]byte, 8)})
		errs := make(chan error, 2)
		for range 2 { // one at work, one waiting for its place
			go func() {
				_, err := f.ReadAt(make([]byte, 8), 0)
				errs <- err
			}()
		}
		time.Sleep(time.Minute)
		d.Remove()
		d.Remove()
		synctest.Wait()
		if len(errs) != 2 {
			t.Fatalf("got %d reads ended, want 2 at once", len(errs))
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, ErrRemoved) {
				t.Errorf("read under way: got %v, want %v", err, ErrRemoved)
			}
		}
		if _, err := f.ReadAt(make([]byte, 8), 0); !errors.Is(err, ErrRemoved) {
			t.Errorf("read after: got %v, want %v", err, ErrRemoved)
		}
	})
}

func TestRecords(t *testing.T) {
	for _, lanes := range []int{1, 2, 3} {
		drives := make([]*Drive, lanes)
		for i := range drives {
			drives[i] = New(Model{})
		}
		src, err := NewRecords(RecordsOptions{
			Shape:  layout.Shape{Layers: 3, Experts: 4, TopK: 2},
			Bytes:  func(layer int) int64 { return int64(5000 * (layer + 1)) },
			Drives: drives,
		})
		if err != nil {
			t.Fatal(err)
		}
		table := crc32.MakeTable(crc32.Castagnoli)
		seen := map[string]bool{}
		var p layout.Placement
		for o := range src.Shape().Count() {
			id := src.Shape().ID(o)
			if err := src.Locate(id, &p); err != nil {
				t.Fatal(err)
			}
			slot := make([]byte, p.Bytes)
			for _, r := range p.Reads {
				if n, err := src.Lanes()[r.Lane].File.ReadAt(slot[r.At:r.At+r.Bytes], r.Offset); int64(n) < r.Need {
					t.Fatalf("%v: got %d bytes %v, want %d", id, n, err, r.Need)
				}
			}
			want := src.Want(id)
			if !bytes.Equal(slot[:len(want)], want) {
				t.Errorf("%d lanes, %v: got other bytes than Want", lanes, id)
			}
			seen[string(want)] = true
			for i, part := range p.Parts {
				if got := crc32.Checksum(slot[part.At:part.At+part.Bytes], table); got != part.Sum || !part.Summed {
					t.Errorf("%d lanes, %v part %d: got sum %08x, want %08x", lanes, id, i, got, part.Sum)
				}
			}
			if p.Bytes != src.SlotBytes(int(id.Layer)) {
				t.Errorf("%v: got %d slot bytes, want %d", id, p.Bytes, src.SlotBytes(int(id.Layer)))
			}
		}
		if len(seen) != 12 {
			t.Errorf("got %d different contents, want 12", len(seen))
		}
		if err := src.Locate(layout.ExpertID{Layer: 3}, &p); err == nil {
			t.Error("Locate of a stranger: got nil, want an error")
		}
		if err := src.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	}
}

func TestRecordsRefusesBadOptions(t *testing.T) {
	_, err := NewRecords(RecordsOptions{Shape: layout.Shape{Layers: 1, Experts: 1, TopK: 1}, Bytes: func(int) int64 { return 1 }})
	if err == nil || !strings.Contains(err.Error(), "experts of 1 bytes, want at least 2") {
		t.Errorf("got %v, want an error that names the size", err)
	}
	if _, err := NewRecords(RecordsOptions{}); err == nil {
		t.Error("no shape: got nil, want an error")
	}
}

// oneFile is a layout.FS with one file.
type oneFile struct{ data []byte }

func (f oneFile) Open(name string, _ layout.Mode) (layout.File, error) {
	if name != "here" {
		return nil, fs.ErrNotExist
	}
	return &memory{data: f.data}, nil
}
func (oneFile) Stat(string) (fs.FileInfo, error)      { return nil, fs.ErrPermission }
func (oneFile) ReadDir(string) ([]fs.DirEntry, error) { return nil, fs.ErrPermission }

func TestFS(t *testing.T) {
	d := New(Model{})
	fsys := &FS{Base: oneFile{[]byte{5}}, Place: func(name string) *Drive { return d }}
	f, err := fsys.Open("here", layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1)
	if _, err := f.ReadAt(buf, 0); err != nil || buf[0] != 5 || d.Stats().Reads != 1 {
		t.Errorf("got %v %v and %d reads of the drive, want [5] nil 1", buf, err, d.Stats().Reads)
	}
	if f.Size() != 1 || f.Close() != nil {
		t.Errorf("got size %d, want 1", f.Size())
	}
	if _, err := fsys.Open("elsewhere", layout.Buffered); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := fsys.Stat("here"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Stat: got %v, want the base's", err)
	}
	if _, err := fsys.ReadDir("."); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("ReadDir: got %v, want the base's", err)
	}
	fsys.Place = func(string) *Drive { return nil }
	if f, err = fsys.Open("here", layout.Direct); err != nil {
		t.Fatal(err)
	}
	if _, ok := f.(*memory); !ok {
		t.Errorf("without a drive: got %T, want the base's file", f)
	}
}
