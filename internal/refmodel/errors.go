package refmodel

import "errors"

// Sentinels of this package; messages add the file, the place and the remedy.
var (
	// ErrArchitecture: the file holds a model of another kind, or uses a
	// variation of the kind that is not implemented.
	ErrArchitecture = errors.New("unsupported model architecture")
	// ErrModel: the file lacks something the architecture needs, or contradicts itself.
	ErrModel = errors.New("incomplete or inconsistent model")
	// ErrTokenizer: the vocabulary is missing, damaged, or of another kind than
	// the byte-level BPE with Qwen2's split rule.
	ErrTokenizer = errors.New("unusable tokenizer")
	// ErrPromptTooLong: the sequence would be longer than the context limit.
	ErrPromptTooLong = errors.New("prompt too long")
	// ErrEmptyPrompt: there is no token to start from.
	ErrEmptyPrompt = errors.New("empty prompt")
	// ErrToken: a token id that the vocabulary does not have.
	ErrToken = errors.New("token id out of range")
	// ErrExperts: the expert weights handed in do not belong to this model.
	ErrExperts = errors.New("expert weights do not fit the model")
	// ErrClosed: the generator was closed and not reset.
	ErrClosed = errors.New("generator is closed")
	// ErrNotFinite: a logit is NaN or infinite, as damaged weights make it.
	ErrNotFinite = errors.New("output is not finite")
)
