package synthckpt

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func tablesOf(text string) fstest.MapFS {
	return fstest.MapFS{"families/t.txt": {Data: []byte(text)}}
}

const head = "family f safetensors models\nexperts s\nothers s\nblocks | moe\n"

// What a family's statements make, by one small family.
func TestGrammar(t *testing.T) {
	lib, err := load(tablesOf(`
scheme s
.weight BF16 OUT IN
.scale F32 OUT/G 1
part experts  # a part
moe routed linear {p}layers.{n}.experts.{e}.up 2*F H
family f safetensors Some, more
use experts
let G 4
prefix model.x.
round H 8
blocks dense | moe lin+moe
behind moe
experts s
type T F16
set model_type "kind"
nest inner
set list [E "a b" 1.5]
byblock kinds lin="l" dense=0 else=K
nest
set flag true
once {p}embed T H
dense {p}layers.{n}.only T H
lin drop.me T H
drop drop.me
each {p}layers.{n}.chunk.{e} T H over=E/2
once {p}last T H
`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := lib.plan(Options{Family: "f", Layers: 3, Experts: 2, TopK: 1, Hidden: 5, FFN: 3})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range m.Tensors {
		names = append(names, x.Name)
	}
	want := strings.Fields(`
		model.x.layers.0.only model.x.layers.0.chunk.0
		model.x.layers.1.experts.0.up.weight model.x.layers.1.experts.0.up.scale model.x.layers.1.experts.1.up.weight model.x.layers.1.experts.1.up.scale model.x.layers.1.chunk.0
		model.x.layers.2.experts.0.up.weight model.x.layers.2.experts.0.up.scale model.x.layers.2.experts.1.up.weight model.x.layers.2.experts.1.up.scale model.x.layers.2.chunk.0
		model.x.layers.3.experts.0.up.weight model.x.layers.3.experts.0.up.scale model.x.layers.3.experts.1.up.weight model.x.layers.3.experts.1.up.scale model.x.layers.3.chunk.0
		model.x.embed model.x.last`)
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if m.Shape.Layers != 2 || !slices.Equal(m.Shape.LayerIDs, []int{1, 2}) || m.Hidden != 8 {
		t.Errorf("got shape %+v and hidden %d, want layers 1 and 2, and 8", m.Shape, m.Hidden)
	}
	if x := m.Tensors[2]; !slices.Equal(x.Dims, []int64{6, 8}) || x.Bytes != 96 || !x.Routed || x.Predict || x.Block != 1 {
		t.Errorf("got %+v, want a routed tensor 6 x 8 of block 1", x)
	}
	if x := m.Tensors[13]; !x.Predict || x.Block != 3 {
		t.Errorf("got %+v, want a tensor of block 3, which predicts", x)
	}
	config, err := m.config()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(strings.Fields(string(config)), " "),
		`{ "flag": true, "inner": { "kinds": [ 0, 1, "l" ], "list": [ 2, "a b", 1.5 ] }, "model_type": "kind" }`; got != want {
		t.Errorf("got config %s, want %s", got, want)
	}
}

// A table that breaks the grammar is told with its place.
func TestTableErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no head", "let A 1", `t.txt:1: "let" stands under no head`},
		{"family twice", "family f gguf x\nfamily f gguf y", "t.txt:2: f stands twice as gguf"},
		{"part twice", "part p\npart p", "part p stands twice"},
		{"unknown part", head + "use q", "t.txt:5: there is no such part"},
		{"unknown family", head + "like q", "there is no such family as safetensors"},
		{"circle", "part a\nuse a\n" + head + "use a", "in a circle"},
		{"short declaration", head + "let A", "let has 2 words"},
		{"unknown size", head + "let A Q", `"Q" is neither`},
		{"wrong multiple", head + "round H x", `"x" is no multiple`},
		{"no name", head + "moe routed", "a tensor has no name"},
		{"no type", head + "moe a", "a has no type"},
		{"unknown type", head + "moe a X9 H", `dtype "X9" is not known`},
		{"unknown size of a tensor", head + "moe a F32 Q", `"Q" is neither`},
		{"unknown option", head + "moe a F32 H far=1", `option "far" is not known`},
		{"unknown data", head + "moe a F32 H data=x", "data=x is not known"},
		{"data of floats", head + "moe a F32 H data=ids", "does not go with F32"},
		{"one size", head + "moe linear a H", "want OUT and IN"},
		{"unknown scheme", head + "moe linear a H H", `scheme "s" of linear layers is not known`},
		{"short scheme", "scheme s\n.w\n" + head + "moe linear a H H", "a suffix and a type"},
		{"odd bytes", head + "moe a F4 3", "no whole number of bytes"},
		{"no value", head + "set a", "wants a key and a value"},
		{"unknown value", head + "set a Q", `"Q" is neither`},
		{"no kind", head + "byblock a 7", "is no KIND=VALUE"},
		{"kind left", head + "byblock a dense=1", "block 0 is of no kind that is named"},
		{"small vocabulary", "family f gguf x\nblocks | moe\nlet V 9\nset tokenizer.ggml.model \"llama\"\nmoe routed a F32 H", "want at least 259"},
	} {
		lib, err := load(tablesOf(c.text))
		if err == nil {
			_, err = lib.plan(Options{Family: "f"})
		}
		if !errors.Is(err, errTable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want errTable with %q", c.name, err, c.want)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	lib, err := load(tablesOf(head + "multiple E 2\nmoe routed a{e} F32 H over=E*E\nfamily short gguf x\nblocks dense\nmoe routed a F32 H\nfamily dense gguf x\nblocks | dense\nmoe routed a F32 H"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		opts Options
		want string
	}{
		{"no family", Options{Family: "g"}, `family "g" is not known`},
		{"other format", Options{Family: "f", Format: GGUF}, `family "f" as gguf is not known`},
		{"layers", Options{Family: "f", Layers: 1001}, "1001 layers, want 1 to 1000"},
		{"layers below 0", Options{Family: "f", Layers: -1}, "-1 layers"},
		{"experts", Options{Family: "f", Experts: 1}, "1 experts, want 2 to"},
		{"top-k", Options{Family: "f", Experts: 4, TopK: 5}, "5 of 4 experts chosen"},
		{"width", Options{Family: "f", Hidden: 1 << 21}, "widths"},
		{"multiple", Options{Family: "f", Experts: 7}, "needs a multiple of 2"},
		{"too many layers", Options{Family: "short", Layers: 2}, "at most 1 layers"},
		{"no experts", Options{Family: "dense"}, "none of 4 layers of dense has experts"},
		{"too many tensors", Options{Family: "f", Experts: 65536}, "more than 1048576 tensors"},
	} {
		_, err := lib.plan(c.opts)
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrOptions) {
			t.Errorf("%s: got %v, want ErrOptions with %q", c.name, err, c.want)
		}
	}
}
