package stream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/examples/llamacpp/llama"
	"outrider/internal/faultfs"
	"outrider/layout"
	"outrider/runtime"
)

// faulty opens the shipped model through a file system that faults can be put into, and
// decodes a prompt.
func faulty(t *testing.T, share float64) (fs *faultfs.FS, d *Decoder, e engine) {
	t.Helper()
	m := openModel(t, Options{Path: libtest.Tiny(t), wrap: func(inner layout.FS) layout.FS {
		fs = faultfs.New(inner)
		return fs
	}}, share)
	d, e = newDecoder(t, m, DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 128}})
	if err := e(prompt(0, libtest.ShippedReference(t)[0].IDs), nil); err != nil {
		t.Fatal(err)
	}
	return fs, d, e
}

// An expert that cannot be read ends the pass with an error that says which, and where it
// lies. Nothing of the pass is left: when the drive is well again the same tokens give what
// they would have given.
func TestUnreadableExpert(t *testing.T) {
	for _, c := range []struct {
		name string
		rule faultfs.Rule
		word string
	}{
		{"error", faultfs.Rule{Op: faultfs.ReadAt, Kind: faultfs.Fail}, "injected"},
		{"short", faultfs.Rule{Op: faultfs.ReadAt, Kind: faultfs.Short, Bytes: 512}, ""},
	} {
		for _, share := range []float64{0, 0.25} {
			fs, d, e := faulty(t, share)
			items := []llama.Item{{Token: 71, Position: 17, Logits: true}, {Token: 300, Position: 18, Logits: true}}
			fs.Add(c.rule)
			err := e(items, nil)
			if err == nil {
				t.Fatalf("%s: no error", c.name)
			}
			for _, word := range []string{c.word, "tinymoe-q8_0.gguf", "layer", "expert"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: got %v, want %q in it", c.name, err, word)
				}
			}
			if share == 0 {
				t.Log(err)
			}
			fs.Clear()
			var got text
			for try := 0; ; try++ { // reads of the pass that failed may still be failing
				err := e(items, got.add)
				if err == nil {
					break
				}
				if got = (text{}); try == 100 {
					t.Fatalf("%s: after the fault: %v", c.name, err)
				}
				time.Sleep(time.Millisecond)
			}
			want := undisturbed(t, d, items)
			if diff := got.difference(want); diff != "" {
				t.Errorf("%s: after the fault: %s", c.name, diff)
			}
			wellKept(t, c.name, d.model.Runtime)
		}
	}
}

// undisturbed is what llama.cpp alone makes of the items behind the prompt, in the pieces
// that the decoder takes now.
func undisturbed(t *testing.T, d *Decoder, items []llama.Item) (out text) {
	t.Helper()
	c, _ := stock(t, stockModel(t, libtest.Tiny(t), false), llama.ContextOptions{Tokens: 128})
	first := prompt(0, libtest.ShippedReference(t)[0].IDs)
	pieces, n := []int{len(first)}, min(d.chunk, len(items))
	if d.Cuts > 0 { // the prompt went in pieces too: their last bits do not matter here
		pieces = nil
		for range first {
			pieces = append(pieces, 1)
		}
	}
	fed(t, c, first, pieces)
	for len(items) > 0 {
		if err := decodePart(c, items[:min(n, len(items))], out.add); err != nil {
			t.Fatal(err)
		}
		items = items[min(n, len(items)):]
	}
	return out
}

// A file that was cut short while the model is in use.
func TestTruncatedFile(t *testing.T) {
	b, err := os.ReadFile(libtest.Tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.gguf")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	m := openModel(t, Options{Path: path}, 0)
	_, e := newDecoder(t, m, DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 64}})
	if err := os.Truncate(path, 4<<20); err != nil {
		t.Fatal(err)
	}
	err = e(prompt(0, libtest.ShippedReference(t)[0].IDs), nil)
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "layer") || !strings.Contains(err.Error(), "expert") {
		t.Errorf("got %v, want an error that names %s, layer and expert", err, path)
	}
	t.Log(err)
}

// A read that does not come back ends with the context; when it does come back, the
// decoder goes on as if nothing had been.
func TestCancelledRead(t *testing.T) {
	fs, d, e := faulty(t, 0.05)
	fs.Add(faultfs.Rule{Op: faultfs.ReadAt, Kind: faultfs.Hang})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	items := []llama.Item{{Token: 71, Position: 17, Logits: true}}
	go func() { done <- d.Decode(ctx, items, nil) }()
	for fs.Seen(0) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that the context was cancelled", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the pass goes on waiting for a read after its context was cancelled")
		fs.Release()
		<-done
	}
	if err := d.Decode(ctx, items, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: got %v", err)
	}
	fs.Release()
	var got text
	if err := e(items, got.add); err != nil {
		t.Fatal(err)
	}
	if diff := got.difference(undisturbed(t, d, items)); diff != "" {
		t.Errorf("after it was cancelled: %s", diff)
	}
}

// The weights that are no experts are read while the model opens: that ends too.
func TestCancelledOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if m, err := Open(ctx, lib(t), Options{Path: libtest.Tiny(t)}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v, want that the context was cancelled", m, err)
	}
}

// Models and decoders may be closed twice and in any order, and are no use afterwards.
func TestCloseInAnyOrder(t *testing.T) {
	o := Options{Path: libtest.Tiny(t), Runtime: runtime.Options{FixedBudget: true}}
	for _, first := range []string{"decoder", "model"} {
		m, err := Open(t.Context(), lib(t), o)
		if err != nil {
			t.Fatal(err)
		}
		var decoders []*Decoder
		for range 2 {
			d, err := m.NewDecoder(t.Context(), DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 64}})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Decode(t.Context(), prompt(0, []int32{71, 101, 32}), nil); err != nil {
				t.Fatal(err)
			}
			decoders = append(decoders, d)
		}
		closers := []func() error{decoders[0].Close, decoders[1].Close, m.Close}
		if first == "model" {
			closers = []func() error{m.Close, decoders[1].Close, decoders[0].Close}
		}
		for range 2 {
			for i, c := range closers {
				if err := c(); err != nil {
					t.Errorf("%s first, number %d: %v", first, i, err)
				}
			}
		}
		d := decoders[0]
		if err := d.Decode(t.Context(), prompt(0, []int32{71}), nil); err == nil {
			t.Error("a closed decoder decodes")
		}
		if err := errors.Join(d.End(0), d.Shift(0, 1, 1)); err == nil {
			t.Error("a closed decoder's sequences are ended and shifted")
		}
		if _, err := d.Logits(0); err == nil {
			t.Error("a closed decoder has logits")
		}
		if _, err := m.NewDecoder(t.Context(), DecoderOptions{}); err == nil {
			t.Error("a closed model makes a decoder")
		}
	}
}
