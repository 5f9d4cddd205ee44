package widen

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/gguf"
)

type closer = io.WriteCloser

// inFile is a file in memory that exists once it is closed.
type inFile struct {
	bytes.Buffer
	fsys *memfs.ReadOnly
	name string
}

func (f *inFile) Close() error {
	f.fsys.Files[f.name] = f.Bytes()
	return nil
}

// altered is a test model with some tensors' dimensions and keys replaced; ""
// and nil leave them out.
func altered(name string, tensors map[string]string, meta map[string]any) model {
	m := models[name]
	m.tensors, m.meta = maps.Clone(m.tensors), merged(m.meta, meta)
	for tensor, dims := range tensors {
		if m.tensors[tensor] = dims; dims == "" {
			delete(m.tensors, tensor)
		}
	}
	return m
}

func merged(a, b map[string]any) map[string]any {
	out := map[string]any{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

func TestRefused(t *testing.T) {
	type tensors = map[string]string
	type keys = map[string]any
	other := models["qwen3moe"]
	other.architecture = "gemma4"
	for _, c := range []struct {
		name  string
		model model
		o     Options
		want  string
	}{
		{"architecture", other, Options{2, 2}, `the architecture is "gemma4", those that can be are deepseek2, glm4moe`},
		{"unknown tensor", altered("qwen3moe", tensors{"blk.0.ssm_in.weight": "/H 4"}, nil), Options{2, 2}, "tensor blk.0.ssm_in.weight has a role that is not known"},
		{"unknown outside", altered("qwen3moe", tensors{"position_embd.weight": "H 4"}, nil), Options{2, 2}, "tensor position_embd.weight has a role"},
		{"part of a name", altered("qwen3moe", tensors{"blk.0.ffn_up_exps.7.weight": "/H F"}, nil), Options{2, 2}, "tensor blk.0.ffn_up_exps.7.weight"},
		{"chunk experts", altered("qwen3moe", tensors{"blk.0.ffn_up_chexps.weight": "/H F E"}, nil), Options{2, 2}, "ffn_up_chexps"},
		{"block number", altered("qwen3moe", tensors{"blk.x.attn_norm.weight": "H"}, nil), Options{2, 2}, "blk.x.attn_norm"},
		{"no such kind", altered("qwen3moe", tensors{"blk.0.attn_norm.scale": "H"}, nil), Options{2, 2}, "blk.0.attn_norm.scale"},
		{"no embedding", altered("qwen3moe", tensors{"token_embd.weight": ""}, nil), Options{2, 2}, "there is no tensor token_embd.weight"},
		{"no experts", altered("qwen3moe", tensors{"blk.0.ffn_gate_exps.weight": "", "blk.0.ffn_up_exps.weight": "", "blk.0.ffn_down_exps.weight": "", "blk.0.ffn_up_exps.input_scale": "", "blk.0.ffn_down_exps.scale": ""}, nil), Options{2, 2}, "no tensors of routed experts"},
		{"stream", altered("qwen3moe", tensors{"blk.0.attn_q.weight": "/7 A"}, nil), Options{2, 2}, "tensor blk.0.attn_q.weight has dimensions [7 6], which do not fit its role and a stream of 6"},
		{"no rows", altered("qwen3moe", tensors{"blk.0.attn_q.weight": "/H"}, nil), Options{2, 2}, "tensor blk.0.attn_q.weight has dimensions [6]"},
		{"odd parts", altered("glm4moe", tensors{"blk.0.ffn_gate_up_exps.weight": "/H 9 E"}, nil), Options{2, 2}, "tensor blk.0.ffn_gate_up_exps.weight has dimensions [6 9 3]"},
		{"inner widths", altered("qwen3moe", tensors{"blk.0.ffn_up_exps.weight": "/H 8 E"}, nil), Options{2, 2}, "tensor blk.0.ffn_up_exps.weight has an inner width of 8, others of its block have 5"},
		{"bias of another width", altered("gpt-oss", tensors{"blk.0.ffn_up_exps.bias": "8 E"}, nil), Options{2, 2}, "blk.0.ffn_up_exps"},
		{"no stream width", altered("qwen3moe", nil, keys{"embedding_length": nil}), Options{2, 2}, "metadata qwen3moe.embedding_length is"},
		{"experts by another kind", altered("qwen3moe", nil, keys{"expert_count": "many"}), Options{2, 2}, `metadata qwen3moe.expert_count is "many"`},
		{"head count", altered("qwen3moe", nil, keys{"attention.head_count": nil}), Options{2, 2}, "metadata has no qwen3moe.attention.value_length, and qwen3moe.attention.head_count gives none"},
		{"width as text", altered("qwen3moe", nil, keys{"feed_forward_length": "7"}), Options{2, 2}, "metadata qwen3moe.feed_forward_length is 7, want an integer"},
		{"width out of range", altered("qwen3moe", nil, keys{"feed_forward_length": uint32(1 << 31)}), Options{2, 2}, "2147483648 times 2 is out of range"},
		{"narrow width", altered("qwen3moe", nil, keys{"feed_forward_length": uint8(7)}), Options{2, 2}, "is uint8, want an integer of 32 or 64 bits"},
	} {
		_, err := New(inMemory(t, c.model.writer(t)), "small.gguf", c.o)
		if !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "widen: small.gguf: ") {
			t.Errorf("%s: got error %v, want ErrModel with %q", c.name, err, c.want)
		}
	}
}

// Tensors of types and shapes that the generic model cannot have.
func TestRefusedTypes(t *testing.T) {
	for _, c := range []struct {
		typ  gguf.Type
		dims []int64
		want string
	}{
		{gguf.I32, []int64{6, 6}, "has type I32, whose numbers are not known how to divide"},
		{gguf.Q8_1, []int64{32, 6}, "do not fit its role and a stream of 6"},
		{gguf.F32, nil, "has dimensions []"},
	} {
		m := altered("qwen3moe", map[string]string{"blk.0.attn_q.weight": ""}, nil)
		w := m.writer(t)
		w.Tensor("blk.0.attn_q.weight", c.typ, c.dims, func(out io.Writer) error {
			n, _ := c.typ.Bytes(c.dims)
			_, err := out.Write(make([]byte, n))
			return err
		})
		if _, err := New(inMemory(t, w), "small.gguf", Options{2, 2}); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %v: got error %v, want ErrModel with %q", c.typ, c.dims, err, c.want)
		}
	}
	// A part of a row ends inside a block.
	m := altered("qwen3moe", nil, map[string]any{"embedding_length": uint32(48)})
	w := &gguf.Writer{}
	w.Set("general.architecture", "qwen3moe")
	for key, value := range merged(baseMeta(), m.meta) {
		w.Set("qwen3moe."+key, value)
	}
	w.TensorBytes("token_embd.weight", gguf.F32, []int64{48, 1}, make([]byte, 4*48))
	w.TensorBytes("blk.0.nextn.eh_proj.weight", gguf.Q8_0, []int64{96, 48}, make([]byte, 48*3*34))
	_, err := New(inMemory(t, w), "small.gguf", Options{2, 2})
	if want := "parts of 48 do not fit Q8_0's blocks of 32"; !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), want) {
		t.Errorf("parts of blocks: got error %v, want ErrModel with %q", err, want)
	}
}

func TestBigEndianRefused(t *testing.T) {
	w := models["qwen3moe"].writer(t)
	w.BigEndian = true
	if _, err := New(inMemory(t, w), "small.gguf", Options{2, 2}); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "big-endian") {
		t.Errorf("got error %v, want ErrModel that says big-endian", err)
	}
}

func TestFactors(t *testing.T) {
	fsys := inMemory(t, models["qwen3moe"].writer(t))
	for _, o := range []Options{{0, 1}, {1, 0}, {-2, 1}, {3, 1}, {1, 6}, {2048, 1}, {1, 1 << 20}} {
		if _, err := New(fsys, "small.gguf", o); !errors.Is(err, ErrFactor) || !strings.Contains(err.Error(), "want a power of two from 1 to 1024") {
			t.Errorf("%+v: got error %v, want ErrFactor", o, err)
		}
	}
	if _, err := New(fsys, "none.gguf", Options{2, 2}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got error %v, want that it does not exist", err)
	}
}

// What fails while writing is said, with the place.
func TestWriteFails(t *testing.T) {
	small := inMemory(t, models["qwen3moe"].writer(t))
	broken, full := errors.New("broken drive"), errors.New("drive is full")
	faulty := faultfs.New(small)
	plan, err := New(faulty, "small.gguf", Options{2, 2})
	if err != nil {
		t.Fatal(err)
	}
	faulty.Add(faultfs.Rule{Op: faultfs.ReadAt, Kind: faultfs.Fail, Err: broken})
	if _, err := plan.Write(t.Context(), io.Discard, nil); !errors.Is(err, broken) || !strings.Contains(err.Error(), "small.gguf: read blk.0.attn_k") {
		t.Errorf("reads fail: got error %v, want it with file and tensor", err)
	}

	plan, err = New(small, "small.gguf", Options{2, 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Write(t.Context(), failing{full}, nil); !errors.Is(err, full) {
		t.Errorf("writes fail: got error %v", err)
	}
	stopped, stop := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	stop(cause)
	if _, err := plan.Write(stopped, io.Discard, nil); !errors.Is(err, cause) {
		t.Errorf("stopped: got error %v, want %v", err, cause)
	}
	small.Files["small.gguf"] = append(small.Files["small.gguf"], 0)
	if _, err := plan.Write(t.Context(), io.Discard, nil); !errors.Is(err, layout.ErrSourceChanged) {
		t.Errorf("another file by now: got error %v, want ErrSourceChanged", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestProgress(t *testing.T) {
	plan, err := New(inMemory(t, models["glm4moe"].writer(t)), "small.gguf", Options{8, 8})
	if err != nil {
		t.Fatal(err)
	}
	var last, total int64
	report, err := plan.Write(t.Context(), io.Discard, func(done, of int64) {
		if done < last || done > of {
			t.Errorf("got %d of %d after %d", done, of, last)
		}
		last, total = done, of
	})
	if err != nil || last != report.Bytes || total != plan.HeaderBytes+plan.TensorBytes {
		t.Errorf("got %d of %d and %v, want %d of %d", last, total, err, report.Bytes, plan.HeaderBytes+plan.TensorBytes)
	}
}
