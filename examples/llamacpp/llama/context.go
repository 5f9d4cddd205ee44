package llama

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// ErrContextFull: there is no room for more tokens of these sequences.
var ErrContextFull = errors.New("the context is full")

// ErrClosed: the context is closed, by itself or with its model.
var ErrClosed = errors.New("llama: the context is closed")

// ContextOptions say what a context is for.
type ContextOptions struct {
	Tokens    int // that all sequences together may have; 0: what the model was trained for
	Batch     int // tokens of one Decode; 0: 512
	Sequences int // 0: 1
	Threads   int // that compute single tokens; 0: one a core
	// BatchThreads compute batches; 0: Threads.
	BatchThreads int
	// FlashAttention is "auto" (""), "on" or "off".
	FlashAttention string
	// Float32Cache keeps keys and values as float32, in twice the memory of float16:
	// for comparisons with what was computed so.
	Float32Cache bool
	Watch        *Watch // nil: no callback
}

// Context is a model's state of one or several sequences. Used from one goroutine.
type Context struct {
	model  *Model
	handle llama.Context
	memory llama.Memory
	batch  llama.Batch
	pools  [2]llama.Threadpool // for tokens and for batches; may be the same

	Tokens, Batch, Sequences int
}

// Item is a token of a batch.
type Item struct {
	Token    int32
	Position int32
	Sequence int32
	Logits   bool // wanted of it
}

// NewContext makes a context. Its threads are kept between graphs: a graph that is
// computed in pieces would otherwise start new ones for each.
func (m *Model) NewContext(o ContextOptions) (*Context, error) {
	p := llama.ContextDefaultParams()
	p.NCtx = uint32(o.Tokens)
	if o.Batch == 0 {
		o.Batch = 512
	}
	p.NBatch, p.NUbatch = uint32(o.Batch), uint32(o.Batch)
	p.NSeqMax = uint32(max(o.Sequences, 1))
	p.KVUnified = 1 // tokens of several sequences stay in the order of the batch
	p.NoPerf = 1
	p.NThreads = int32(cmp.Or(o.Threads, runtime.NumCPU()))
	p.NThreadsBatch = cmp.Or(int32(o.BatchThreads), p.NThreads)
	var err error
	if p.FlashAttentionType, err = flashAttention(o.FlashAttention); err != nil {
		return nil, err
	}
	if o.Float32Cache {
		p.TypeK, p.TypeV = llama.GGMLTypeF32, llama.GGMLTypeF32
	}
	if o.Watch != nil {
		p.CbEval, p.CbEvalUserData = o.Watch.filter.Callback(), o.Watch.filter.UserData()
	}
	if m.handle == 0 {
		return nil, fmt.Errorf("llama: make a context: the model is closed")
	}
	_ = m.lib.log.words()
	c := &Context{model: m, Batch: o.Batch, Sequences: int(p.NSeqMax)}
	if c.handle, err = llama.InitFromModel(m.handle, p); err != nil || c.handle == 0 {
		return nil, fmt.Errorf("llama: make a context: %w%s", errors.Join(err), m.lib.log.words())
	}
	m.opened(c)
	c.Tokens = int(llama.NCtx(c.handle))
	c.batch = llama.BatchInit(int32(o.Batch), 0, 1)
	if c.memory, err = llama.GetMemory(c.handle); err == nil && c.memory == 0 {
		err = fmt.Errorf("this model keeps nothing of a sequence, and so does not write token by token (diffusion models, encoders)")
	}
	if err == nil {
		err = c.newPools(p.NThreads, p.NThreadsBatch)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("llama: make a context: %w", err), c.Close())
	}
	llama.AttachThreadpool(c.handle, uintptr(c.pools[0]), uintptr(c.pools[1]))
	return c, nil
}

// newPools makes the threads that compute.
func (c *Context) newPools(threads, batch int32) (err error) {
	if c.pools[0], err = newPool(threads); err != nil {
		return err
	}
	if c.pools[1] = c.pools[0]; batch != threads {
		c.pools[1], err = newPool(batch)
	}
	return err
}

// newPool makes threads that poll for the next graph a moment only: what they wait for
// then is a read, and its worker needs the core.
func newPool(threads int32) (llama.Threadpool, error) {
	p := llama.ThreadpoolParamsDefault(threads)
	p.Poll = 1
	return llama.ThreadpoolNew(&p)
}

func flashAttention(word string) (llama.FlashAttentionType, error) {
	switch word {
	case "", "auto":
		return llama.FlashAttentionTypeAuto, nil
	case "on":
		return llama.FlashAttentionTypeEnabled, nil
	case "off":
		return llama.FlashAttentionTypeDisabled, nil
	}
	return 0, fmt.Errorf("llama: flash attention is %q, want auto, on or off", word)
}

// Decode computes a batch of at most Batch tokens. Whoever stopped it through the watch
// finds the tokens in the context all the same, with no meaning, and removes them.
func (c *Context) Decode(items []Item) error {
	if c.handle == 0 {
		return ErrClosed
	}
	if len(items) == 0 || len(items) > c.Batch {
		return fmt.Errorf("llama: decode %d tokens, want 1 to %d", len(items), c.Batch)
	}
	if err := c.batch.Clear(); err != nil {
		return err
	}
	for _, it := range items {
		if it.Sequence < 0 || int(it.Sequence) >= c.Sequences {
			return fmt.Errorf("llama: decode: a token is of sequence %d, the context has %d", it.Sequence, c.Sequences)
		}
		if err := c.batch.Add(llama.Token(it.Token), llama.Pos(it.Position), []llama.SeqId{llama.SeqId(it.Sequence)}, it.Logits); err != nil {
			return err
		}
	}
	_ = c.model.lib.log.words()
	status, err := llama.Decode(c.handle, c.batch)
	switch {
	case err != nil:
		return fmt.Errorf("llama: decode: %w", err)
	case status == 1:
		return fmt.Errorf("llama: decode: %w: it has %d tokens", ErrContextFull, c.Tokens)
	case status != 0:
		return fmt.Errorf("llama: decode: status %d%s", status, c.model.lib.log.words())
	}
	return nil
}

// Logits are those of the i-th token of the last batch, which must have wanted them;
// valid until the next Decode.
func (c *Context) Logits(i int) ([]float32, error) {
	if c.handle == 0 {
		return nil, ErrClosed
	}
	logits, err := llama.GetLogitsIth(c.handle, int32(i), c.model.Tokens)
	if err == nil && logits == nil {
		err = fmt.Errorf("llama: token %d of the last batch has no logits%s", i, c.model.lib.log.words())
	}
	return logits, err
}

// Cut removes the tokens of a sequence from a position on, as if they had never been
// decoded. It fails for models that cannot forget (Model.Forgetful), unless all goes.
func (c *Context) Cut(sequence, from int32) error {
	if c.handle == 0 {
		return ErrClosed
	}
	ok, err := llama.MemorySeqRm(c.memory, llama.SeqId(sequence), llama.Pos(from), -1)
	if err == nil && !ok {
		err = fmt.Errorf("this model's memory cannot be cut")
	}
	if err != nil {
		return fmt.Errorf("llama: remove sequence %d from token %d on: %w", sequence, from, err)
	}
	return nil
}

// Shift drops the tokens from keep to keep+drop of a sequence, and moves those behind
// into their place.
func (c *Context) Shift(sequence, keep, drop int32) error {
	if c.handle == 0 {
		return ErrClosed
	}
	ok, err := llama.MemoryCanShift(c.memory)
	if err == nil && !ok {
		err = fmt.Errorf("%w, and this model's memory cannot be shifted", ErrContextFull)
	}
	if err == nil {
		ok, err = llama.MemorySeqRm(c.memory, llama.SeqId(sequence), llama.Pos(keep), llama.Pos(keep+drop))
	}
	if err == nil && !ok {
		err = fmt.Errorf("this model's memory cannot be cut")
	}
	if err == nil {
		err = llama.MemorySeqAdd(c.memory, llama.SeqId(sequence), llama.Pos(keep+drop), -1, llama.Pos(-drop))
	}
	if err != nil {
		return fmt.Errorf("llama: shift sequence %d: %w", sequence, err)
	}
	return nil
}

// Close frees the context and its threads. A second call does nothing.
func (c *Context) Close() error {
	if c.handle == 0 {
		return nil
	}
	c.model.closed(c)
	llama.DetachThreadpool(c.handle)
	llama.BatchFree(c.batch)
	err := llama.Free(c.handle)
	if c.pools[1] != c.pools[0] {
		llama.ThreadpoolFree(c.pools[1])
	}
	llama.ThreadpoolFree(c.pools[0])
	c.handle = 0
	return err
}
