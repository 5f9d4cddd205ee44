package refmodel

import "fmt"

// Config is the model's hyper-parameters.
type Config struct {
	Blocks       int // transformer blocks; each has an MoE layer
	Context      int // longest sequence in tokens
	Hidden       int // width of the residual stream
	Heads        int // query heads
	KVHeads      int // key and value heads, each shared by Heads/KVHeads query heads
	HeadDim      int
	Experts      int // routed experts of a layer
	TopK         int // experts used for a token
	ExpertHidden int // inner width of an expert
	Vocab        int // tokens
	RopeBase     float64
	NormEps      float32
}

// Bounds that no published model comes near; they keep products of two of
// these numbers, and what is allocated from them, in range.
const (
	maxWidth   = 1 << 18
	maxHeads   = 1 << 12
	maxBlocks  = 4096
	maxContext = 1 << 28
	maxVocab   = 1 << 24
)

// validate reports the first number that cannot be.
func (c Config) validate() error {
	ranges := []struct {
		key         string
		value, most int
	}{
		{"block_count", c.Blocks, maxBlocks},
		{"context_length", c.Context, maxContext},
		{"embedding_length", c.Hidden, maxWidth},
		{"attention.head_count", c.Heads, maxHeads},
		{"attention.head_count_kv", c.KVHeads, maxHeads},
		{"attention.key_length", c.HeadDim, maxHeads},
		{"expert_count", c.Experts, maxWidth},
		{"expert_used_count", c.TopK, c.Experts},
		{"expert_feed_forward_length", c.ExpertHidden, maxWidth},
		{"number of tokens", c.Vocab, maxVocab},
	}
	for _, r := range ranges {
		if r.value < 1 || r.value > r.most {
			return fmt.Errorf("%w: %s is %d, want 1 to %d", ErrModel, r.key, r.value, r.most)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%w: %d query heads cannot share %d key/value heads", ErrModel, c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("%w: head width %d is odd, RoPE needs two halves", ErrModel, c.HeadDim)
	case !(c.RopeBase > 0) || c.RopeBase > 1e12:
		return fmt.Errorf("%w: rope.freq_base is %v, want a positive number", ErrModel, c.RopeBase)
	case !(c.NormEps >= 0) || c.NormEps > 1:
		return fmt.Errorf("%w: attention.layer_norm_rms_epsilon is %v, want 0 to 1", ErrModel, c.NormEps)
	}
	return nil
}

// queries and keys are the widths of a token's query row and of its key (or value) row.
func (c Config) queries() int { return c.Heads * c.HeadDim }
func (c Config) keys() int    { return c.KVHeads * c.HeadDim }
