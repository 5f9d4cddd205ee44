package refmodel

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// script samples a fixed list of tokens, then its last one for ever.
type script []int32

func (s *script) Sample([]float32) int32 {
	id := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	return id
}

func newSynthetic(t *testing.T, o Options) (*Generator, *memory) {
	t.Helper()
	path, _ := synthetic{config: smallConfig()}.write(t)
	model, experts := loadMemory(t, path)
	return experts.generator(t, model, o), experts
}

func TestGenerateStops(t *testing.T) {
	end := int32(256) // of the synthetic vocabulary
	tests := []struct {
		name    string
		options Options
		script  script
		n       int
		want    Stop
		tokens  int
		length  int // of the sequence: all but the last token went in
	}{
		{"length", Options{}, script{1}, 5, StopLength, 5, 12 + 4},
		{"end", Options{}, script{1, 2, end, 3}, 9, StopEnd, 2, 12 + 2},
		{"end ignored", Options{IgnoreEnd: true}, script{1, 2, end, 3}, 9, StopLength, 9, 12 + 8},
		{"context", Options{Context: 15}, script{1}, 9, StopContext, 4, 15},
		{"prompt fills the context", Options{Context: 12}, script{1}, 9, StopContext, 1, 12},
		{"nothing asked", Options{}, script{1}, 0, StopLength, 0, 12},
	}
	for _, test := range tests {
		g, _ := newSynthetic(t, test.options)
		got, err := g.Generate(context.Background(), someTokens, test.n, &test.script, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Stop != test.want || len(got.Tokens) != test.tokens || g.Len() != test.length {
			t.Errorf("%s: got stop %v, %d tokens, length %d, want %v, %d, %d",
				test.name, got.Stop, len(got.Tokens), g.Len(), test.want, test.tokens, test.length)
		}
	}
}

func TestGenerateText(t *testing.T) {
	g, _ := newSynthetic(t, Options{})
	tokenizer := g.runner.model.Tokenizer
	s := script(tokenizer.Encode("né 日"))
	var ids []int32
	var parts []string
	result, err := g.Generate(context.Background(), someTokens, len(s)-1, &s, func(id int32, text string) error {
		ids, parts = append(ids, id), append(parts, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"n", "", "é", " ", "", ""}; !slices.Equal(parts, want) {
		t.Errorf("streamed text: got %q, want %q (the cut character stays out)", parts, want)
	}
	if result.Text != "né \xe6\x97" || !slices.Equal(ids, result.Tokens) {
		t.Errorf("got text %q, tokens %v of %v", result.Text, ids, result.Tokens)
	}
}

func TestGenerateErrors(t *testing.T) {
	ctx := context.Background()
	g, experts := newSynthetic(t, Options{Context: 20})
	_, err := g.Generate(ctx, make([]int32, 21), 1, Greedy{}, nil)
	wantError(t, "prompt", err, ErrPromptTooLong, "21 tokens after 0 in the sequence, the context limit is 20: shorten the prompt or raise Options.Context (the model has 64)")
	_, err = g.Generate(ctx, nil, 1, Greedy{}, nil)
	wantError(t, "no prompt", err, ErrEmptyPrompt, "at least one token")
	for _, id := range []int32{-1, 258} {
		_, err = g.Generate(ctx, []int32{1, id}, 1, Greedy{}, nil)
		wantError(t, "token", err, ErrToken, "token 1 of the pass is")
	}
	if err := g.Reset(); err != nil {
		t.Fatal(err)
	}
	wantError(t, "decode", g.Decode(ctx, make([]int32, 21)...), ErrPromptTooLong, "fills the context limit of 20 tokens")

	enough := errors.New("enough")
	result, err := g.Generate(ctx, someTokens, 5, &script{1, 2, 3}, func(id int32, _ string) error {
		if id == 2 {
			return enough
		}
		return nil
	})
	if err != enough || !slices.Equal(result.Tokens, []int32{1, 2}) {
		t.Errorf("callback: got %v and tokens %v, want its own error after [1 2]", err, result.Tokens)
	}

	sessions := experts.closed
	if err := errors.Join(g.Close(), g.Close()); err != nil || experts.closed != sessions+1 {
		t.Errorf("two Closes: got %v, session closed %d times more", err, experts.closed-sessions)
	}
	wantError(t, "closed", g.Decode(ctx, 1), ErrClosed, "Reset starts a sequence")
	for _, o := range []Options{{Chunk: -1}, {Context: -1}, {Context: 65}} {
		if _, err := newGenerator(g.runner.model, nil, o); err == nil || !strings.Contains(err.Error(), "want 0 (") {
			t.Errorf("%+v: got error %v", o, err)
		}
	}
}
