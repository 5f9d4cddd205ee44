package llama

import (
	"fmt"
	"regexp"
	"runtime"
	"unsafe"

	"github.com/hybridgroup/yzma/pkg/llama"

	"outrider/examples/llamacpp/ggml"
)

// BuildOptions say how a model is made of what the caller has.
type BuildOptions struct {
	// Header is a GGUF file without its tensor data, of all shards in one.
	Header []byte
	// Own names the tensors whose memory is the caller's: nothing is allocated for
	// them, and Place must give each a place (ggml.Tensor.Place).
	Own []string
	// Place is called once for each tensor that the model uses, in no order that
	// matters: it fills the tensor (Model.Fill's function) or gives it a place. The
	// tensor's address is valid while the model is.
	Place func(t *ggml.Tensor, fill FillFunc) error
}

// FillFunc writes bytes of a tensor's weights, from offset on, into the memory that
// llama.cpp allocated for it.
type FillFunc func(b []byte, offset int64)

// Build makes a model whose weights come from the caller, with
// llama_model_init_from_user. What the model is made of (architecture, vocabulary,
// tensors) llama.cpp takes from the header, as it does from a file's.
func (l *Lib) Build(o BuildOptions) (*Model, error) {
	r, err := l.newReserve()
	if err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	m, err := l.build(o, r)
	if err != nil {
		if r.err != nil {
			err = r.err
		}
		_ = r.close()
		return nil, fmt.Errorf("llama: build a model: %w", err)
	}
	m.reserve = r
	return m, nil
}

func (l *Lib) build(o BuildOptions, r *reserve) (*Model, error) {
	if len(o.Header) == 0 {
		return nil, fmt.Errorf("the header is empty")
	}
	_ = l.log.words()
	meta := l.ggufParse(unsafe.SliceData(o.Header), uint64(len(o.Header)), 1, 0)
	runtime.KeepAlive(o.Header)
	if meta == 0 {
		return nil, fmt.Errorf("llama.cpp does not take the header%s", l.log.words())
	}
	defer l.ggufFree(meta)
	p := &placing{lib: l, place: o.Place}
	user := placers.register(p.tensor)
	defer placers.remove(user)
	params := stockParams()
	overrides := ownOverrides(o.Own, r)
	params.TensorBuftOverrides = uintptr(unsafe.Pointer(unsafe.SliceData(overrides)))
	callback := placeCallback()
	var handle llama.Model
	l.fromUser.Call(unsafe.Pointer(&handle), unsafe.Pointer(&meta), unsafe.Pointer(&callback), unsafe.Pointer(&user), unsafe.Pointer(&params))
	runtime.KeepAlive(overrides)
	if p.err != nil {
		if handle != 0 {
			llama.ModelFree(handle)
		}
		return nil, p.err
	}
	return l.newModel(handle)
}

// stockParams are the parameters of every model here. Buffers in which the CPU backend
// stores weights in another order than the checkpoint are off: experts cannot be
// brought in the checkpoint's bytes then, and arms would not compute the same.
func stockParams() llama.ModelParams {
	p := llama.ModelDefaultParams()
	p.SetCPUOnly()
	p.UseExtraBufts = 0
	p.LoadMode = llama.LoadModeNone
	return p
}

// ownOverrides says which tensors go into the reserve; the list ends with a zero.
func ownOverrides(names []string, r *reserve) []llama.TensorBuftOverride {
	list := make([]llama.TensorBuftOverride, 0, len(names)+1)
	for _, n := range names {
		pattern := append([]byte("^"+regexp.QuoteMeta(n)+"$"), 0)
		list = append(list, llama.TensorBuftOverride{Pattern: &pattern[0], Type: llama.GGMLBackendBufferType(uintptr(unsafe.Pointer(r.typ)))})
	}
	return append(list, llama.TensorBuftOverride{})
}

// placing is one model's way through its tensors.
type placing struct {
	lib     *Lib
	place   func(*ggml.Tensor, FillFunc) error
	checked bool
	err     error
}

// tensor is told of each. llama.cpp cannot be stopped here, so that after an error the
// others are passed over, and the model is freed when it is made.
func (p *placing) tensor(t *ggml.Tensor) {
	if p.err != nil {
		return
	}
	if !p.checked {
		if p.err = p.lib.checkLayout(t); p.err != nil {
			return
		}
		p.checked = true
	}
	p.err = p.place(t, func(b []byte, offset int64) {
		if len(b) > 0 {
			p.lib.tensorSet(uintptr(unsafe.Pointer(t)), &b[0], uint64(offset), uint64(len(b)))
		}
	})
}

// checkLayout compares what ggml.Tensor sees with what the library says.
func (l *Lib) checkLayout(t *ggml.Tensor) error {
	at := uintptr(unsafe.Pointer(t))
	name, data, size := l.tensorName(at), l.tensorData(at), l.tensorSize(at)
	rows := uint64(t.Dims[1]) * uint64(t.Dims[2]) * uint64(t.Dims[3])
	if t.Name() != name || uintptr(t.Data) != data || rows == 0 || t.Strides[1]*rows != size {
		return fmt.Errorf("struct ggml_tensor is laid out otherwise than in v%s: %q is seen as %q", Version, name, t.Name())
	}
	return nil
}
