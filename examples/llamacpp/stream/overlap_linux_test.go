package stream

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/examples/llamacpp/llama"
	"outrider/examples/llamacpp/stream/overlap"
	"outrider/layout"
)

// needOverlap skips where the kernel refuses, in its words.
func needOverlap(t *testing.T) {
	t.Helper()
	m, err := overlap.New(layout.Shape{Layers: 1, Experts: 1, TopK: 1}, []int64{4096})
	if errors.Is(err, overlap.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closeIt(t, m.Close)
}

// reference is what llama.cpp alone makes of a prompt.
func reference(t *testing.T, prompts []libtest.Prompt, single bool, n int) (want []text) {
	t.Helper()
	m := stockModel(t, libtest.Tiny(t), false)
	for _, p := range prompts {
		_, e := stock(t, m, llama.ContextOptions{Tokens: 256})
		if single {
			e = oneByOne(e)
		}
		want = append(want, greedy(t, e, p.IDs, n))
	}
	return want
}

// llama.cpp computes while experts arrive, and computes the same, bit for bit.
func TestOverlapEqualToStock(t *testing.T) {
	needOverlap(t)
	prompts := libtest.ShippedReference(t)[:3]
	for _, arm := range []struct {
		name  string
		share float64
		n     int
		o     Options
	}{
		{"floor", 0, 4, Options{}},
		{"a quarter", 0.25, 32, Options{}},
		{"a quarter, weights mapped", 0.25, 8, Options{Dense: DenseMapped}},
		{"all but a little", 0.97, 32, Options{}},
		{"all", 1, 32, Options{}},
	} {
		t.Run(arm.name, func(t *testing.T) {
			want := reference(t, prompts, arm.share == 0, arm.n)
			arm.o.Path, arm.o.Overlap = libtest.Tiny(t), true
			m := openModel(t, arm.o, arm.share)
			if on := m.overlap != nil; on != (arm.share < 1) {
				t.Errorf("overlap %v with a share of %g", on, arm.share)
			}
			d, e := newDecoder(t, m, DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 256, Threads: threads}})
			if arm.share == 0 {
				e = oneByOne(e)
			}
			for i, p := range prompts {
				if diff := greedy(t, e, p.IDs, arm.n).difference(want[i]); diff != "" {
					t.Errorf("%s: %s", p.Name, diff)
				}
				if err := d.End(0); err != nil {
					t.Error(err)
				}
			}
			wellKept(t, arm.name, m.Runtime)
		})
	}
}

// Decoders of one model take turns, whoever decodes with them.
func TestOverlapOfTwoDecoders(t *testing.T) {
	needOverlap(t)
	const n = 32
	prompts := libtest.ShippedReference(t)[:2]
	want := reference(t, prompts, false, n)
	m := openModel(t, Options{Path: libtest.Tiny(t), Overlap: true}, 0.25)
	var all sync.WaitGroup
	for i, p := range prompts {
		_, e := newDecoder(t, m, DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 256}})
		all.Go(func() {
			if diff := greedy(t, e, p.IDs, n).difference(want[i]); diff != "" {
				t.Errorf("%s: %s", p.Name, diff)
			}
		})
	}
	all.Wait()
}

// A pass that is given up at any moment leaves nothing behind, and no thread waiting.
func TestOverlapCancelled(t *testing.T) {
	needOverlap(t)
	p := libtest.ShippedReference(t)[0]
	const n = 16
	m := openModel(t, Options{Path: libtest.Tiny(t), Overlap: true}, 0)
	d, e := newDecoder(t, m, DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 256, Threads: threads}})
	gone := errors.New("gone")
	r := rand.New(rand.NewPCG(1, 2))
	cancelled := 0
	for range 60 {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(time.Duration(r.IntN(4000))*time.Microsecond, func() { cancel(gone) })
		err := d.Decode(ctx, prompt(0, p.IDs[:4]), nil)
		timer.Stop()
		cancel(nil)
		switch {
		case errors.Is(err, gone), errors.Is(err, context.Canceled):
			cancelled++
		case err != nil:
			t.Fatalf("got %v, want that it was cancelled", err)
		}
		if err := d.End(0); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of 60 were cancelled", cancelled)
	single := reference(t, []libtest.Prompt{p}, true, n)[0]
	if diff := greedy(t, oneByOne(e), p.IDs, n).difference(single); diff != "" {
		t.Errorf("afterwards: %s", diff)
	}
}

// Experts that cannot be read end the pass with an error that names one, however many
// threads waited for it. When they can be read again, all goes on.
func TestOverlapFailingRead(t *testing.T) {
	needOverlap(t)
	p := libtest.ShippedReference(t)[0]
	const n = 4
	want := reference(t, []libtest.Prompt{p}, true, n)[0]
	path := filepath.Join(t.TempDir(), "model.gguf")
	copyInto(t, path)
	m := openModel(t, Options{Path: path, Overlap: true}, 0)
	d, e := newDecoder(t, m, DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 256, Threads: threads}})
	for range 2 {
		if err := os.Truncate(path, 1<<20); err != nil {
			t.Fatal(err)
		}
		err := d.Decode(t.Context(), prompt(0, p.IDs), nil)
		if err == nil || !strings.Contains(err.Error(), "expert") || !strings.Contains(err.Error(), path) {
			t.Fatalf("got %v, want an error that names the expert and the file", err)
		}
		copyInto(t, path)
		if diff := greedy(t, oneByOne(e), p.IDs, n).difference(want); diff != "" {
			t.Errorf("when it can be read again: %s", diff)
		}
		if err := d.End(0); err != nil {
			t.Fatal(err)
		}
	}
}

// copyInto writes the shipped model into a file, over what is there.
func copyInto(t *testing.T, path string) {
	t.Helper()
	from, err := os.Open(libtest.Tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = io.Copy(to, from)
		err = errors.Join(err, to.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
