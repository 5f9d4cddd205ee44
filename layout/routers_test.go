package layout_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"outrider/internal/dequant"
	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/safetensors"
)

const (
	routerWidth = 64
	routerPath  = "/m/router.safetensors"
)

// withRouters gives a checkpoint routers of all types that are read, in a shard
// of their own, and returns their numbers by "layers.N.name".
func withRouters(t testing.TB, fsys *memfs.FS, cp *layout.Checkpoint) map[string][]float32 {
	t.Helper()
	want := map[string][]float32{}
	data := make([]byte, 100)
	add := func(layer int, name, typ string, count int) layout.RouterTensor {
		raw := routerBytes(typ, count, byte(layer+1))
		numbers := make([]float32, count)
		format, err := dequant.Lookup(typ)
		if err != nil {
			t.Fatal(err)
		}
		if err := format.Row(raw, numbers); err != nil {
			t.Fatal(err)
		}
		want[fmt.Sprintf("layers.%d.%s", layer, name)] = numbers
		span := layout.Span{File: len(cp.Files), Offset: int64(len(data)), Bytes: int64(len(raw))}
		data = append(data, raw...)
		return layout.RouterTensor{Source: "gate." + name, Type: typ, Span: span}
	}
	r := &layout.CheckpointRouters{Width: routerWidth, RouterRule: layout.RouterRule{Scoring: layout.ScoreSigmoid, Groups: 3, GroupsUsed: 2, Normalised: true, Scale: 2.5}}
	types := []string{"F16", "BF16", "Q8_0", "F32"}
	for l := range cp.Shape.Layers {
		var layer layout.CheckpointRouter
		layer.Weight = add(l, "weight", types[l%len(types)], cp.Shape.Experts*routerWidth)
		if l == 1 {
			layer.Bias = add(l, "bias", "F32", cp.Shape.Experts)
		}
		layer.Selection = add(l, "selection_bias", "F32", cp.Shape.Experts)
		r.Layers = append(r.Layers, layer)
	}
	cp.Routers = r
	if err := fsys.WriteFile("/models/routers.gguf", data); err != nil {
		t.Fatal(err)
	}
	cp.Files = append(cp.Files, layout.CheckpointFile{Path: "/models/routers.gguf", Size: int64(len(data)), Header: "11"})
	return want
}

// routerBytes are bytes of a type whose numbers are all finite.
func routerBytes(typ string, count int, seed byte) (raw []byte) {
	for i := range count {
		x := float32(i%37-18)*0.25 + float32(seed)
		switch typ {
		case "F32":
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x/3))
		case "BF16":
			raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(x)>>16))
		case "F16":
			raw = binary.LittleEndian.AppendUint16(raw, 0x3000+uint16(i*7%4000))
		case "Q8_0":
			if i%32 == 0 {
				raw = binary.LittleEndian.AppendUint16(raw, 0x2c00+uint16(i))
			}
			raw = append(raw, byte(i)*seed)
		}
	}
	return raw
}

func routerStore(t testing.TB) (*memfs.FS, layout.Checkpoint, map[string][]float32) {
	t.Helper()
	fsys := memfs.New(memfs.Options{})
	cp := source(t, fsys, smallModel)
	want := withRouters(t, fsys, &cp)
	report := build(t, fsys, "/m", cp, layout.PlanOptions{})
	data, err := fsys.ReadFile(routerPath)
	if err != nil || report.RouterBytes != int64(len(data)) {
		t.Fatalf("got %d router bytes and %v, the file has %d", report.RouterBytes, err, len(data))
	}
	return fsys, cp, want
}

// The store and the checkpoint in place say the same of the routers, which are
// the checkpoint's, widened; and others can read the file.
func TestRoutersOfStoreAndCheckpoint(t *testing.T) {
	fsys, cp, want := routerStore(t)
	store := open(t, fsys, "/m", layout.Buffered)
	inPlace, err := layout.OpenInPlace(fsys, cp, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer inPlace.Close()
	for _, src := range []layout.RouterSource{store, inPlace} {
		r, err := src.Routers()
		if err != nil {
			t.Fatal(err)
		}
		if r.RouterRule != cp.Routers.RouterRule || r.Width != routerWidth || r.Bytes() != int64(4*(3*6*64+6+3*6)) {
			t.Errorf("%T: got %+v, width %d, %d bytes", src, r.RouterRule, r.Width, r.Bytes())
		}
		for l := range cp.Shape.Layers {
			m, err := r.Load(l)
			if err != nil {
				t.Fatal(err)
			}
			for name, got := range map[string][]float32{"weight": m.Weight, "bias": m.Bias, "selection_bias": m.Selection} {
				if !slices.Equal(got, want[fmt.Sprintf("layers.%d.%s", l, name)]) {
					t.Errorf("%T layer %d %s: got other numbers than the checkpoint has", src, l, name)
				}
			}
		}
		if _, err := r.Load(3); err == nil || !strings.Contains(err.Error(), "layer 3") {
			t.Errorf("%T: layer 3 of 3: got %v", src, err)
		}
	}
	file, err := safetensors.Open(fsys, routerPath)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Tensors()) != len(want) || file.Metadata()["scoring"] != "sigmoid" {
		t.Errorf("got %d tensors and metadata %v", len(file.Tensors()), file.Metadata())
	}
	for name, numbers := range want {
		tensor, _ := file.Tensor(name)
		raw := make([]byte, 4*len(numbers))
		if err := file.ReadTensor(tensor, raw); err != nil || tensor.Offset%4 != 0 {
			t.Fatalf("%s at %d: %v", name, tensor.Offset, err)
		}
		for i, x := range numbers {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != x {
				t.Fatalf("%s number %d: got %v, want %v", name, i, got, x)
			}
		}
	}
}

func TestHalvesWidenExactly(t *testing.T) {
	half, err := dequant.Lookup("F16")
	if err != nil {
		t.Fatal(err)
	}
	var want [1]float32
	for h := range 1 << 16 {
		if err := half.Row([]byte{byte(h), byte(h >> 8)}, want[:]); err != nil {
			t.Fatal(err)
		}
		if got := layout.HalfToFloat(uint16(h)); got != want[0] && !(got != got && want[0] != want[0]) {
			t.Fatalf("half %#04x: got %v, want %v", h, got, want[0])
		}
	}
}

// Stores without routers are whole; they say why there are none.
func TestNoRouters(t *testing.T) {
	fsys := memfs.New(memfs.Options{})
	cp := source(t, fsys, smallModel)
	cp.NoRouters = "tensor blk.0.ffn_gate_inp.weight has type Q2_K"
	if report := build(t, fsys, "/m", cp, layout.PlanOptions{}); report.RouterBytes != 0 {
		t.Errorf("got %d router bytes, want none", report.RouterBytes)
	}
	if _, err := fsys.Stat(routerPath); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no router file", err)
	}
	inPlace, err := layout.OpenInPlace(fsys, cp, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer inPlace.Close()
	for word, src := range map[string]layout.RouterSource{
		"build it again": open(t, fsys, "/m", layout.Buffered), "has type Q2_K": inPlace,
		"golden-v1": open(t, layout.OS(), goldenDir, layout.Buffered),
	} {
		if _, err := src.Routers(); !errors.Is(err, layout.ErrNoRouters) || !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want %v that says %q", err, layout.ErrNoRouters, word)
		}
	}
}

// sealed changes the header and gives it a right length and checksum.
func sealed(change func([]byte) []byte) func([]byte) []byte {
	return func(data []byte) []byte {
		n := binary.LittleEndian.Uint64(data)
		head := layout.SealRouters(change(bytes.Clone(data[8 : 8+n])))
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...), data[8+n:]...)
	}
}

// A damaged router file is told apart from a store without one. It neither stops
// the store from opening nor passes Verify.
func TestRoutersRefuseDamage(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func([]byte) []byte
		want   wrong
	}{
		{"empty", func([]byte) []byte { return nil }, wrong{nil, routerPath, "fewer than a length"}},
		{"length too large", func(b []byte) []byte { b[7] = 0x7f; return b }, wrong{nil, routerPath, "want at most"}},
		{"length beyond the file", func(b []byte) []byte { return b[:200] }, wrong{nil, routerPath, "want at most"}},
		{"not JSON", func(b []byte) []byte { b[8] = '!'; return b }, wrong{nil, routerPath, "not JSON"}},
		{"an array", func([]byte) []byte { return append(make([]byte, 8), "[]"...) }, wrong{nil, routerPath, "JSON"}},
		{"of others", sealed(replace("outrider routers", "pt")), wrong{nil, routerPath, `its format is "pt"`}},
		{"newer version", sealed(replace(`"version":"1"`, `"version":"3"`)), wrong{layout.ErrVersion, "", `"3"`}},
		{"changed", replace(`"groups":"3"`, `"groups":"2"`), wrong{nil, routerPath, "checksum"}},
		{"end", sealed(replace(`"}}`, `"},"x":1}`)), wrong{nil, routerPath, "end of the header"}},
		{"of another store", sealed(replace(`"store":"`, `"store":"f`)), wrong{nil, routerPath, "belongs to the store"}},
		{"layers", sealed(replace(`"layers":"3"`, `"layers":"2"`)), wrong{nil, routerPath, "2 layers x 6"}},
		{"experts", sealed(replace(`"experts":"6"`, `"experts":"7"`)), wrong{nil, routerPath, "3 layers x 7"}},
		{"no width", sealed(replace(`"width":"64"`, `"width":""`)), wrong{nil, routerPath, "width"}},
		{"width", sealed(replace(`"width":"64"`, `"width":"63"`)), wrong{nil, routerPath, "want F32 [6 63]"}},
		{"huge width", sealed(replace(`"width":"64"`, `"width":"4611686018427387904"`)), wrong{nil, routerPath, "columns"}},
		{"negative width", sealed(replace(`"width":"64"`, `"width":"-64"`)), wrong{nil, routerPath, "columns"}},
		{"scoring", sealed(replace("sigmoid", "tanh")), wrong{nil, routerPath, "tanh"}},
		{"groups", sealed(replace(`"groups":"3"`, `"groups":"4"`)), wrong{nil, routerPath, "4 equal groups"}},
		{"groups used", sealed(replace(`"groups_used":"2"`, `"groups_used":"4"`)), wrong{nil, routerPath, "4 of 3 groups"}},
		{"normalised", sealed(replace(`"normalised":"true"`, `"normalised":"maybe"`)), wrong{nil, routerPath, "maybe"}},
		{"scale", sealed(replace(`"scale":"2.5"`, `"scale":"NaN"`)), wrong{nil, routerPath, "NaN"}},
		{"no scale", sealed(replace(`"scale":"2.5"`, `"scale":"x"`)), wrong{nil, routerPath, "scale"}},
		{"tensor missing", sealed(replace(`layers.2.weight`, `layers.9.weight`)), wrong{nil, routerPath, "layers.2.weight is missing"}},
		{"tensor's type", sealed(replace(`"F32"`, `"F16"`)), wrong{nil, routerPath, "layers.0.weight is F16"}},
		{"tensor's place", sealed(replace(`"data_offsets":[0,`, `"data_offsets":[4,`)), wrong{nil, routerPath, "want F32"}},
		{"tensor too many", sealed(replace(`"layers.0.weight"`, `"x":{},"layers.0.weight"`)), wrong{nil, routerPath, "belong to nothing"}},
		{"sums short", sealed(replace(`"sums":"`, `"sums":"","were":"`)), wrong{nil, routerPath, "no checksum"}},
		{"sums long", sealed(replace(`"sums":"`, `"sums":"00000000`)), wrong{nil, routerPath, "belong to nothing"}},
		{"sums no hex", sealed(replace(`"sums":"`, `"sums":"zzzzzzzz`)), wrong{nil, routerPath, "zzzzzzzz"}},
		{"data cut", cutOff(4), wrong{nil, routerPath, "-4 bytes"}},
		{"data too long", func(b []byte) []byte { return append(b, 0) }, wrong{nil, routerPath, "1 bytes belong to nothing"}},
	} {
		fsys, _, _ := routerStore(t)
		edit(t, fsys, routerPath, test.change)
		_, err := open(t, fsys, "/m", layout.Buffered).Routers()
		test.want.check(t, test.name, err)
		report, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: fsys, Dir: "/m"})
		if err != nil || report.Found != 1 || report.Damages[0].Lane != routerPath {
			t.Errorf("%s: Verify: got %+v and %v, want one finding", test.name, report, err)
		}
	}
}

// Verify finds a changed number by its checksum, and, beside the checkpoint,
// one that was changed there.
func TestVerifyRouters(t *testing.T) {
	fsys, cp, _ := routerStore(t)
	verify := func() *layout.VerifyReport {
		t.Helper()
		report, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: fsys, Dir: "/m", Source: &cp})
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	if r := verify(); !r.OK() || r.RouterBytes == 0 {
		t.Fatalf("got %+v, want all right with routers", r)
	}
	edit(t, fsys, "/models/routers.gguf", flip(120))
	if r := verify(); r.Found != 1 || !strings.Contains(r.Damages[0].Reason, "differs from the checkpoint's gate.weight") {
		t.Errorf("changed checkpoint: got %+v", r)
	}
	edit(t, fsys, "/models/routers.gguf", flip(120))
	data, err := fsys.ReadFile(routerPath)
	if err != nil {
		t.Fatal(err)
	}
	edit(t, fsys, routerPath, flip(len(data)-1))
	if r := verify(); r.Found != 1 || !strings.Contains(r.Damages[0].Reason, "checksum") {
		t.Errorf("changed store: got %+v", r)
	}
	r, err := open(t, fsys, "/m", layout.Buffered).Routers()
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Load(2)
	wrong{nil, routerPath, "checksum"}.check(t, "load", err)
}

// A build that fails at the routers leaves nothing.
func TestBuildFailsAtRouters(t *testing.T) {
	for _, test := range []struct {
		name string
		rule faultfs.Rule
		is   error
		text string
	}{
		{"source fails", faultfs.Rule{Op: faultfs.ReadAt, Name: "routers.gguf", From: 2, Kind: faultfs.Fail, Err: syscall.EIO}, syscall.EIO, "routers.gguf"},
		{"source lies", faultfs.Rule{Op: faultfs.ReadAt, Name: "routers.gguf", Kind: faultfs.Silent}, layout.ErrSilentRead, "routers.gguf"},
		{"disk is full", faultfs.Rule{Op: faultfs.WriteAt, Name: "router.safetensors", From: 2, Kind: faultfs.Fail, Err: syscall.ENOSPC}, layout.ErrNoSpace, "router.safetensors"},
		{"write is lost", faultfs.Rule{Op: faultfs.WriteAt, Name: "router.safetensors", From: 2, To: 2, Kind: faultfs.Silent}, nil, "read back"},
		{"header is changed", faultfs.Rule{Op: faultfs.WriteAt, Name: "router.safetensors", Kind: faultfs.Flip, Bit: 300}, nil, "router.safetensors"},
		{"sync fails", faultfs.Rule{Op: faultfs.Sync, Name: "router.safetensors", Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"create fails", faultfs.Rule{Op: faultfs.Create, Name: "router.safetensors", Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
	} {
		mem := memfs.New(memfs.Options{})
		cp := source(t, mem, smallModel)
		withRouters(t, mem, &cp)
		faulty := faultfs.New(mem)
		faulty.Add(test.rule)
		_, err := layout.Build(context.Background(), layout.BuildOptions{FS: faulty, Dir: "/m", Plan: plan(t, cp, layout.PlanOptions{}), Checkpoint: &cp})
		if err == nil || (test.is != nil && !errors.Is(err, test.is)) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: got %v, want %v that says %q", test.name, err, test.is, test.text)
		}
		for _, path := range []string{"/m", "/m.building"} {
			if _, err := mem.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s is still there", test.name, path)
			}
		}
	}
}

func TestValidateRefusesRouters(t *testing.T) {
	for _, test := range []struct {
		text   string
		change func(*layout.CheckpointRouters)
	}{
		{"score", func(r *layout.CheckpointRouters) { r.Scoring = "" }},
		{"groups", func(r *layout.CheckpointRouters) { r.Groups = -1 }},
		{"columns", func(r *layout.CheckpointRouters) { r.Width = 0 }},
		{"routers of 2 layers", func(r *layout.CheckpointRouters) { r.Layers = r.Layers[:2] }},
		{"type", func(r *layout.CheckpointRouters) { r.Layers[0].Weight.Type = "Q4_K" }},
		{"bytes, want", func(r *layout.CheckpointRouters) { r.Layers[0].Weight.Bytes-- }},
		{"file 7", func(r *layout.CheckpointRouters) { r.Layers[1].Bias.File = 7 }},
		{"outside", func(r *layout.CheckpointRouters) { r.Layers[2].Selection.Offset = 1 << 40 }},
		{"scaled", func(r *layout.CheckpointRouters) { r.Scale = math.Inf(1) }},
	} {
		fsys := memfs.New(memfs.Options{})
		cp := source(t, fsys, smallModel)
		withRouters(t, fsys, &cp)
		if err := cp.Validate(); err != nil {
			t.Fatal(err)
		}
		test.change(cp.Routers)
		if err := cp.Validate(); !errors.Is(err, layout.ErrCheckpoint) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("got %v, want %v that says %q", err, layout.ErrCheckpoint, test.text)
		}
	}
}

func FuzzDecodeRouters(f *testing.F) {
	fsys, cp, _ := routerStore(f)
	data, err := fsys.ReadFile(routerPath)
	if err != nil {
		f.Fatal(err)
	}
	id := open(f, fsys, "/m", layout.Buffered).Manifest().ID
	f.Add(data, false)
	f.Add(data[:60], true)
	hashed, hcp, _ := hashSource(f)
	build(f, hashed, "/m", hcp, layout.PlanOptions{})
	if data, err = hashed.ReadFile(routerPath); err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Replace(data, []byte(open(f, hashed, "/m", layout.Buffered).Manifest().ID), []byte(id), 1), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal && len(data) > 8 {
			data = append(bytes.Clone(data[:8]), layout.SealRouters(data[8:])...)
		}
		r, err := layout.DecodeRouters(data, id, cp.Shape)
		if err == nil && r.Bytes(cp.Shape) > int64(len(data)) {
			t.Errorf("accepted %d bytes of tensors in a file of %d", r.Bytes(cp.Shape), len(data))
		}
	})
}
