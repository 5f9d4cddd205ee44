package importer

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
)

const (
	// maxReplyDepth is how deep answers may be nested in other JSON.
	maxReplyDepth = 64
	// maxReplyText is the longest text, or run of JSON without one: base64 of 128 MiB of ids.
	maxReplyText = 192 << 20
)

// replyWalk looks for objects with a text under "routed_experts", which are
// meta_info or a part of it, in JSON that is too large to be held. Of what lies
// around them nothing is kept.
type replyWalk struct {
	file  *file
	in    *metered
	dec   *json.Decoder
	stack []replyFrame
	found func(r *sglangReply) error
}

// replyFrame is an object or an array that is open.
type replyFrame struct {
	object bool
	isKey  bool // a key comes next
	key    string
	has    bool
	reply  sglangReply
}

func (f *file) eachReplyJSON(fn func(r *sglangReply) error) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	defer r.Close() // nothing was written
	w := &replyWalk{file: f, in: &metered{src: bufio.NewReader(r)}, found: fn}
	w.dec = json.NewDecoder(w.in)
	w.dec.UseNumber()
	for {
		w.in.left = maxReplyText
		t, err := w.dec.Token()
		if errors.Is(err, io.EOF) && len(w.stack) == 0 {
			return nil
		}
		if err != nil {
			return w.failed(err)
		}
		if err := w.token(t); err != nil {
			return err
		}
	}
}

func (w *replyWalk) at() place { return place{offset: w.dec.InputOffset()} }

func (w *replyWalk) failed(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return endOf(w.file, w.at(), err, "the JSON of an answer")
	case errors.Is(err, errTooLong):
		return w.file.damaged(w.at(), "a text is longer than %d bytes", maxReplyText)
	case errors.As(err, &syntax):
		return w.file.damaged(w.at(), "no JSON: %v", err)
	}
	return w.file.failed(err)
}

// token takes one token of the JSON.
func (w *replyWalk) token(t json.Token) error {
	d, _ := t.(json.Delim)
	switch d {
	case '{', '[':
		if len(w.stack) == maxReplyDepth {
			return w.file.damaged(w.at(), "the JSON is nested deeper than %d levels", maxReplyDepth)
		}
		w.stack = append(w.stack, replyFrame{object: d == '{', isKey: d == '{', reply: sglangReply{prompt: -1, completion: -1}})
		return nil
	case '}', ']':
		top := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		w.valueDone()
		if top.has {
			return w.found(&top.reply)
		}
		return nil
	}
	return w.scalar(t)
}

// valueDone says that a value of the open object ended, so a key comes next.
func (w *replyWalk) valueDone() {
	if n := len(w.stack); n > 0 {
		w.stack[n-1].isKey = w.stack[n-1].object
	}
}

func (w *replyWalk) scalar(t json.Token) error {
	if len(w.stack) == 0 {
		return nil
	}
	top := &w.stack[len(w.stack)-1]
	if top.isKey {
		top.key, top.isKey = t.(string), false
		return nil
	}
	if top.object {
		if err := w.field(top, t); err != nil {
			return err
		}
	}
	w.valueDone()
	return nil
}

// field takes a value of an object that may be meta_info.
func (w *replyWalk) field(top *replyFrame, t json.Token) (err error) {
	r := &top.reply
	switch top.key {
	case "routed_experts":
		if text, ok := t.(string); ok {
			r.routed, r.at, top.has = text, w.at(), true
		}
	case "routed_experts_dtype":
		r.dtype, _ = t.(string)
	case "routed_experts_start_len":
		err = w.number(top.key, t, &r.start)
	case "prompt_tokens":
		err = w.number(top.key, t, &r.prompt)
	case "completion_tokens":
		err = w.number(top.key, t, &r.completion)
	}
	return err
}

// number takes a count; null leaves it unknown. Far smaller than what overflows.
func (w *replyWalk) number(key string, t json.Token, to *int64) error {
	if t == nil {
		return nil
	}
	text, _ := t.(json.Number)
	n, err := text.Int64()
	if err != nil || n < 0 || n > 1<<40 {
		return w.file.damaged(w.at(), "%s is %.40v, want a whole number of 0 or more", key, t)
	}
	*to = n
	return nil
}
