package stream

import (
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/examples/llamacpp/llama"
)

// residue is what a process has: goroutines, open files, maps of models' files.
type residue struct{ goroutines, files, maps int }

// leftovers notes what there is before, the library loaded and used.
func leftovers(t testing.TB) residue {
	t.Helper()
	lib(t)
	return residueNow(t)
}

func residueNow(t testing.TB) residue {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system does not tell what is open")
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("this system does not tell what is mapped")
	}
	return residue{goruntime.NumGoroutine(), len(fds), strings.Count(string(maps), ".gguf")}
}

// check waits for goroutines that are about to end.
func (before residue) check(t testing.TB) {
	t.Helper()
	var now residue
	for range 1000 {
		if now = residueNow(t); now.goroutines <= before.goroutines && now.files <= before.files && now.maps <= before.maps {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("left behind: %+v, before %+v", now, before)
}

// Models that come and go leave no goroutine, no open file and no mapping.
func TestNothingIsLeft(t *testing.T) {
	use := func() {
		for _, dense := range []Dense{DenseAnonymous, DenseMapped} {
			m, err := Open(t.Context(), lib(t), Options{Path: libtest.Tiny(t), Dense: dense})
			if err != nil {
				t.Fatal(err)
			}
			d, err := m.NewDecoder(t.Context(), DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 64}})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Decode(t.Context(), prompt(0, madeUp(m.Tokens, 8)), nil); err != nil {
				t.Fatal(err)
			}
			closeIt(t, d.Close)
			closeIt(t, m.Close)
		}
	}
	use()
	before := residueNow(t)
	for range 3 {
		use()
	}
	before.check(t)
}
