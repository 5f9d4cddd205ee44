package synthckpt

import "fmt"

// Kinds of tokens as GGUF numbers them.
const (
	normalToken  = 1
	unknownToken = 2
	controlToken = 3
	byteToken    = 6
)

// smallestVocabulary has the special tokens and one for each byte.
const smallestVocabulary = 3 + 256

// tokenizer adds the smallest tokenizer that splits every text: a token for each
// byte, then some letters, pairs and words' beginnings, in SentencePiece's form.
func (b *builder) tokenizer() error {
	size := int(b.vars["V"])
	if size < smallestVocabulary {
		return fmt.Errorf("synthckpt: %w: %s: %d tokens, want at least %d", errTable, b.family.Name, size, smallestVocabulary)
	}
	tokens := []string{"<unk>", "<s>", "</s>"}
	kinds := []int32{unknownToken, controlToken, controlToken}
	for c := range 256 {
		tokens = append(tokens, fmt.Sprintf("<0x%02X>", c))
		kinds = append(kinds, byteToken)
	}
	tokens = append(tokens, pieces(size-len(tokens))...)
	scores := make([]float32, size)
	for i := smallestVocabulary; i < size; i++ {
		kinds = append(kinds, normalToken)
		scores[i] = -float32(i - smallestVocabulary)
	}
	b.out.Settings = append(b.out.Settings,
		Setting{"tokenizer.ggml.tokens", tokens}, Setting{"tokenizer.ggml.scores", scores}, Setting{"tokenizer.ggml.token_type", kinds},
		Setting{"tokenizer.ggml.bos_token_id", int64(1)}, Setting{"tokenizer.ggml.eos_token_id", int64(2)},
		Setting{"tokenizer.ggml.unknown_token_id", int64(0)})
	return nil
}

// pieces are n different texts, short ones first.
func pieces(n int) []string {
	const space = "\u2581" // stands for a blank
	list := []string{"th", "he", "in", "er", "an", "re", "on", "at", space}
	for c := 'a'; c <= 'z'; c++ {
		list = append(list, string(c), space+string(c))
	}
	for i := 0; len(list) < n; i++ {
		list = append(list, fmt.Sprintf("<piece %d>", i))
	}
	return list[:n]
}
