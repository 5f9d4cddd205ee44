package llama

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// Model is a loaded model. Safe for concurrent use.
type Model struct {
	lib     *Lib
	handle  llama.Model
	vocab   llama.Vocab
	reserve *reserve

	mu   sync.Mutex
	open map[*Context]bool // not closed yet

	Tokens  int    // of the vocabulary
	Context int    // that the model was trained for
	About   string // llama.cpp's description: architecture, size, type
	// Forgetful: its memory of a sequence cannot be cut back to an earlier token
	// (recurrent and hybrid models).
	Forgetful bool
}

// Open loads a model as llama.cpp does by itself: mapped into memory, or read into it.
// Path is a GGUF file, of a split model the first shard.
func (l *Lib) Open(path string, mapped bool) (*Model, error) {
	p := stockParams()
	if mapped {
		p.LoadMode = llama.LoadModeMmap
	}
	_ = l.log.words()
	handle, err := llama.ModelLoadFromFile(path, p)
	if err != nil {
		return nil, fmt.Errorf("llama: load %s: %w%s", path, err, l.log.words())
	}
	m, err := l.newModel(handle)
	if err != nil {
		return nil, fmt.Errorf("llama: load %s: %w", path, err)
	}
	return m, nil
}

func (l *Lib) newModel(handle llama.Model) (*Model, error) {
	if handle == 0 {
		return nil, fmt.Errorf("llama.cpp refuses the model%s", l.log.words())
	}
	vocab := llama.ModelGetVocab(handle)
	m := &Model{
		lib: l, handle: handle, vocab: vocab,
		Tokens: int(llama.VocabNTokens(vocab)), Context: int(llama.ModelNCtxTrain(handle)), About: llama.ModelDesc(handle),
		Forgetful: llama.ModelIsRecurrent(handle) || llama.ModelIsHybrid(handle),
	}
	return m, nil
}

// Tokenize turns text into tokens, with what the model wants at the beginning. A text ends
// at a zero byte in C, so zero bytes are left out.
func (m *Model) Tokenize(text string) []int32 {
	return asInt32s(llama.Tokenize(m.vocab, strings.ReplaceAll(text, "\x00", ""), true, true))
}

// Piece is the bytes of a token. Bytes of one letter may be in several tokens.
func (m *Model) Piece(token int32) []byte {
	buf := make([]byte, 64)
	n := llama.TokenToPiece(m.vocab, llama.Token(token), buf, 0, true)
	if n < 0 {
		buf = make([]byte, -n)
		n = llama.TokenToPiece(m.vocab, llama.Token(token), buf, 0, true)
	}
	return buf[:max(n, 0)]
}

// Ends reports whether a token ends a text.
func (m *Model) Ends(token int32) bool { return llama.VocabIsEOG(m.vocab, llama.Token(token)) }

// Text is the text of several tokens.
func (m *Model) Text(tokens []int32) string {
	var b strings.Builder
	for _, t := range tokens {
		b.Write(m.Piece(t))
	}
	return b.String()
}

// Close closes the contexts that are still open, and frees the model and the address space
// of tensors that it did not hold. A second call does nothing.
func (m *Model) Close() error {
	var errs []error
	for {
		c := m.anyOpen()
		if c == nil {
			break
		}
		errs = append(errs, c.Close())
	}
	if m.handle == 0 {
		return nil
	}
	errs = append(errs, llama.ModelFree(m.handle))
	m.handle = 0
	return errors.Join(append(errs, m.reserve.close())...)
}

func (m *Model) anyOpen() *Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.open {
		return c
	}
	return nil
}

// opened and closed keep account of the contexts.
func (m *Model) opened(c *Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		m.open = map[*Context]bool{}
	}
	m.open[c] = true
}

func (m *Model) closed(c *Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, c)
}

func asInt32s(tokens []llama.Token) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = int32(t)
	}
	return out
}

// Library is the version of llama.cpp that runs the model.
func (m *Model) Library() string { return m.lib.Version }
