package layout_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"outrider/layout"
)

func openSystem(t testing.TB, o layout.SystemOptions) *layout.System {
	t.Helper()
	s, err := layout.OpenSystem(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Errorf("Close twice: got %v, want nil", err)
		}
	})
	return s
}

func TestOpenSystemChooses(t *testing.T) {
	path, _ := diskFile(t, 8192)
	ring, err := layout.OpenRing(layout.RingOptions{})
	possible := err == nil
	if possible {
		ring.Close()
	}
	pread := layout.EnginePread
	if runtime.GOOS != "linux" {
		pread = layout.EngineBuffered
	}
	auto := pread
	if possible {
		auto = layout.EngineRing
	}
	for _, test := range []struct {
		kind layout.EngineKind
		want string
	}{{layout.AutoEngine, auto}, {layout.PreadEngine, pread}} {
		s := openSystem(t, layout.SystemOptions{Engine: test.kind})
		if s.Engine() != test.want || (s.Reason() == "") != (test.want == layout.EngineRing) {
			t.Errorf("engine %d: got %q because %q, want %q", test.kind, s.Engine(), s.Reason(), test.want)
		}
		f := openDirect(t, s, path)
		if layout.Engine(f) != test.want || !layout.IsDirect(f) {
			t.Errorf("engine %d: got a file read by %q, direct %v; want %q", test.kind, layout.Engine(f), layout.IsDirect(f), test.want)
		}
	}
	s, err := layout.OpenSystem(layout.SystemOptions{Engine: layout.RingEngine})
	if possible != (err == nil) || (err != nil && !errors.Is(err, layout.ErrNoRing)) {
		t.Errorf("ring: got %v, want it exactly where OpenRing works", err)
	}
	if err == nil {
		defer s.Close()
		for fsys, least := range map[layout.FS]int64{s: 0, openSystem(t, layout.SystemOptions{}): 256 << 10} {
			f := openDirect(t, fsys, path)
			small := pread
			if least == 0 {
				small = layout.EngineRing
			}
			if layout.LeastCarried(f) != least || layout.EngineFor(f, 256<<10) != layout.EngineRing || layout.EngineFor(f, 256<<10-1) != small {
				t.Errorf("got reads carried from %d bytes on, smaller ones by %q, want %d and %q", layout.LeastCarried(f), layout.EngineFor(f, 256<<10-1), least, small)
			}
		}
	}
}

func TestOpenSystemRefuses(t *testing.T) {
	for _, test := range []struct {
		o    layout.SystemOptions
		text string
	}{
		{layout.SystemOptions{Engine: 9}, "no engine 9"},
		{layout.SystemOptions{Depth: -1}, "want 1 to 4096"},
		{layout.SystemOptions{Depth: 5000, Engine: layout.RingEngine}, "want 1 to 4096"},
	} {
		if s, err := layout.OpenSystem(test.o); s != nil || err == nil || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%+v: got %v, want %q", test.o, err, test.text)
		}
	}
}

func TestReadVOfAFileWithoutVectors(t *testing.T) {
	path, want := diskFile(t, 10_000)
	f, err := layout.OS().Open(path, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, b := make([]byte, 3000), make([]byte, 8000)
	n, err := layout.ReadV(struct{ layout.File }{f}, [][]byte{a, nil, b}, 100)
	if n != 9900 || err == nil || string(a)+string(b[:6900]) != string(want[100:]) {
		t.Errorf("got %d bytes and %v, want 9900 right ones and the end", n, err)
	}
}
