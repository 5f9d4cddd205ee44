package llama

import (
	"sync"

	"github.com/ebitengine/purego"

	"outrider/examples/llamacpp/ggml"
)

// A callback that C may call can never be freed, and a process has some two thousand.
// So there is one of each kind, and these say whose call it is.
var (
	reserves registry[func(size uint64) uintptr]
	placers  registry[func(t *ggml.Tensor)]
	watchers registry[func(t *ggml.Tensor, ask bool) bool]
)

type registry[F any] struct {
	mu   sync.Mutex
	last uintptr
	by   map[uintptr]F
}

func (r *registry[F]) add(key uintptr, f F) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[uintptr]F{}
	}
	r.by[key] = f
}

// register chooses a key.
func (r *registry[F]) register(f F) (key uintptr) {
	r.mu.Lock()
	r.last++
	key = r.last
	r.mu.Unlock()
	r.add(key, f)
	return key
}

func (r *registry[F]) get(key uintptr) F {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[key]
}

func (r *registry[F]) remove(key uintptr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, key)
}

// allocCallback is alloc_buffer of the buffer types here.
var allocCallback = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(typ uintptr, size uint64) uintptr { return reserves.get(typ)(size) })
})

// placeCallback is llama_model_set_tensor_data_t.
var placeCallback = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(t *ggml.Tensor, user uintptr) { placers.get(user)(t) })
})

// watchCallback is ggml_backend_sched_eval_callback behind a filter.
var watchCallback = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(t *ggml.Tensor, ask bool, f *ggml.Filter) bool {
		if ask && !f.Wants(t) {
			return false
		}
		return watchers.get(f.User)(t, ask)
	})
})

// Watch is told of the nodes of a context's graphs that a filter passes: first asked,
// before the node is computed, whether it wants the data (with ask), then given it. If it
// returns false then, the rest of the graph is not computed. It runs on the goroutine
// that decodes.
type Watch struct{ filter *ggml.Filter }

// NewWatch makes a watch for one context; Close it after the context.
func NewWatch(f func(t *ggml.Tensor, ask bool) bool) *Watch {
	return &Watch{ggml.NewFilter(watchCallback(), watchers.register(f))}
}

// Pass says what the watch is told of.
func (w *Watch) Pass(p ggml.Pass) { w.filter.Set(p) }

// Close forgets the function.
func (w *Watch) Close() { watchers.remove(w.filter.User) }
