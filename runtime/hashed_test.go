package runtime_test

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/runtime"
	"outrider/trace"
)

// hashModel is routerModel whose every layer chooses by the token's number, as
// routing does. Its matrices would choose otherwise.
func hashModel(t *testing.T, fsys *memfs.FS) layout.Checkpoint {
	t.Helper()
	cp := routerModel(t, fsys)
	var data []byte
	for layer := range small.Layers {
		at := int64(len(data))
		for token := range int32(lookWidth) {
			for _, e := range routing(token, layer) {
				data = binary.LittleEndian.AppendUint32(data, uint32(e))
			}
		}
		cp.Routers.Layers[layer].Weight = cp.Routers.Layers[(layer+1)%small.Layers].Weight
		cp.Routers.Layers[layer].Hash = layout.RouterTensor{Source: "tid2eid", Type: "I32", Span: layout.Span{File: 1, Offset: at, Bytes: int64(len(data)) - at}}
	}
	cp.Routers.Tokens = lookWidth
	if err := fsys.WriteFile("/tables.gguf", data); err != nil {
		t.Fatal(err)
	}
	cp.Files = append(cp.Files, layout.CheckpointFile{Path: "/tables.gguf", Size: int64(len(data)), Header: "00"})
	return cp
}

// runPass runs one token of a session; its choices come from routing.
func runPass(t *testing.T, s *runtime.Session, token int32) {
	t.Helper()
	synctest.Wait()
	for layer := range small.Layers {
		use, err := s.Use(t.Context(), layer, choose(routing(token%lookWidth, layer)...))
		if err != nil {
			t.Fatal(err)
		}
		if err := use.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		use.Release()
		synctest.Wait()
	}
}

// Once the token is told, nothing has to be waited for, from a store's tables and
// from a checkpoint's, in the first layer too. What look-ahead would say of these
// layers is left aside. Without the token, and for one that is in no table, there
// is nothing to tell.
func TestHashedLayersAreKnownByTheToken(t *testing.T) {
	told := func(token int32) []int32 { return []int32{token % lookWidth} }
	for _, arm := range []struct {
		name        string
		store, look bool
		tokens      func(token int32) []int32
		least, most float64 // hits
	}{
		{"store", true, false, told, 0.98, 1},
		{"in place", false, false, told, 0.98, 1},
		{"with look-ahead", true, true, told, 0.98, 1},
		{"tokens are not told", true, false, func(int32) []int32 { return nil }, 0, 0.8},
		{"tokens that no table has", true, false, func(token int32) []int32 { return []int32{token%lookWidth + lookWidth, -1} }, 0, 0.8},
	} {
		t.Run(arm.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fsys := memfs.New(memfs.Options{})
				rt := looking(t, sourceOf(t, fsys, hashModel(t, fsys), arm.store), runtime.Options{Predictor: ignorant{}, Horizon: 4})
				defer rt.Close()
				s := rt.NewSession()
				for token := range int32(100) {
					s.Step(trace.Decode, arm.tokens(token))
					if arm.look {
						if err := s.Lookahead(0, hidden(token)); err != nil {
							t.Fatal(err)
						}
					}
					runPass(t, s, token)
				}
				if hits := rt.Stats().HitRate(); hits < arm.least || hits > arm.most {
					t.Errorf("hits %.3f, want %.2f to %.2f", hits, arm.least, arm.most)
				}
			})
		})
	}
}

// A table that cannot be loaded is told in the log and stops nothing.
func TestHashedLayersWhoseTableFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(memfs.Options{})
		cp := hashModel(t, mem)
		fsys := faultfs.New(mem)
		sourceOf(t, mem, cp, true).Close()
		store, err := layout.OpenStore(fsys, "/m", layout.Buffered)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		rt := looking(t, store, runtime.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer rt.Close()
		fsys.Add(faultfs.Rule{Op: faultfs.ReadAt, Name: "router.safetensors", Kind: faultfs.Flip, Bit: 9})
		s := rt.NewSession()
		for token := range int32(3) {
			s.Step(trace.Decode, []int32{token})
			runPass(t, s, token)
		}
		if n := strings.Count(log.String(), "a table cannot be loaded"); n != 1 || !strings.Contains(log.String(), "layers.0.hash") {
			t.Errorf("log: got %q, want one word of the table", log.String())
		}
	})
}
