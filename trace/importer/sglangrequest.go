package importer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"outrider/layout"
	"outrider/trace"
)

// formSGLangRequest is what SGLang answers a request with (server argument
// --enable-return-routed-experts, request field return_routed_experts):
// meta_info.routed_experts, base64 of flat numbers [tokens - 1 - start, hidden layers, k], where
// start is the request's routed_experts_start_len. The last token is never routed. The numbers are
// little-endian int32, or what meta_info.routed_experts_dtype says.
const formSGLangRequest = "sglang-routed-experts"

func sniffSGLangRequest(p *peek) bool {
	text := bytes.TrimLeft(p.head, " \t\r\n")
	if len(text) == 0 {
		return false
	}
	if text[0] == '{' || text[0] == '[' {
		return bytes.Contains(text, []byte(`"meta_info"`)) && bytes.Contains(text, []byte(`"routed_experts"`))
	}
	return isBareIDs(p, text)
}

// isBareIDs reports base64 of nothing but small int32.
func isBareIDs(p *peek, text []byte) bool {
	text = bytes.TrimRight(text, " \t\r\n")
	if !p.whole {
		text = text[:len(text)/16*16]
	}
	ids := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(ids, text)
	if err != nil || n < 32 || n%4 != 0 {
		return false
	}
	for i := 0; i < n; i += 4 {
		if id := int32(binary.LittleEndian.Uint32(ids[i:])); id < -1 || id >= layout.MaxExperts {
			return false
		}
	}
	return true
}

func openSGLangRequest(in *input) (*content, error) {
	all, err := in.shape(layout.Shape{})
	if err != nil {
		return nil, err
	}
	return openRouted(in, &routedForm{name: formSGLangRequest, ids: trace.IDsUnknown, each: func(fn func(*routedSequence) error) error {
		for _, f := range in.files {
			if err := f.eachReply(func(r *sglangReply) error {
				s, err := r.sequence(f, all)
				if err != nil {
					return err
				}
				return fn(s)
			}); err != nil {
				return err
			}
		}
		return nil
	}}, all)
}

// sglangReply is one request's answer, as far as it matters.
type sglangReply struct {
	at                 place
	routed, dtype      string
	prompt, completion int64 // tokens, -1 where not told
	start              int64
}

// widths of routed_experts_dtype.
var sglangWidths = map[string]int{"": 4, "int32": 4, "uint16": 2, "uint8": 1}

// sequence unpacks the ids and checks their number.
func (r *sglangReply) sequence(f *file, all layout.Shape) (*routedSequence, error) {
	width := sglangWidths[r.dtype]
	if width == 0 {
		return nil, f.damaged(r.at, "routed_experts_dtype is %q, want int32, uint16 or uint8", r.dtype)
	}
	ids, err := base64.StdEncoding.DecodeString(r.routed)
	if err != nil {
		return nil, f.damaged(r.at, "routed_experts is no base64: %v", err)
	}
	row := all.Layers * all.TopK
	if len(ids)%(row*width) != 0 {
		return nil, f.damaged(r.at, "routed_experts holds %d bytes, no multiple of %d layers x %d ids x %d bytes: are --layers (all hidden layers, dense ones too) and --top-k right?",
			len(ids), all.Layers, all.TopK, width)
	}
	rows := int64(len(ids) / (row * width))
	if r.start < 0 {
		return nil, f.damaged(r.at, "routed_experts_start_len is %d, want 0 or more", r.start)
	}
	if want := r.prompt + r.completion - 1 - r.start; r.prompt >= 0 && r.completion >= 0 && rows != max(want, 0) {
		return nil, f.damaged(r.at, "routed_experts holds %d tokens of %d layers x %d ids, but %d of the prompt and %d of the answer, less the last one and the first %d (routed_experts_start_len), are %d: are --layers (all hidden layers, dense ones too) and --top-k right?",
			rows, all.Layers, all.TopK, r.prompt, r.completion, r.start, want)
	}
	s := &routedSequence{file: f, at: r.at, start: r.start, prompt: r.prompt}
	s.rows = func(fn func(at place, ids []int32) error) error {
		buf := make([]int32, row)
		for b := ids; len(b) > 0; b = b[row*width:] {
			for i := range buf {
				buf[i] = littleID(b[i*width:], width)
			}
			if err := fn(r.at, buf); err != nil {
				return err
			}
		}
		return nil
	}
	return s, nil
}

// littleID is an id of routed_experts: only int32 has a sign.
func littleID(b []byte, width int) int32 {
	if width == 2 {
		return int32(binary.LittleEndian.Uint16(b))
	}
	return int32(littleInt(b, width))
}

// eachReply calls fn with each answer of a file: bare base64, or JSON of any
// depth, one value or several.
func (f *file) eachReply(fn func(r *sglangReply) error) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	first, err := firstByte(r)
	if err := errors.Join(endOfReply(f, err), r.Close()); err != nil {
		return err
	}
	if first == '{' || first == '[' {
		return f.eachReplyJSON(fn)
	}
	b, err := f.whole()
	if err != nil {
		return err
	}
	return fn(&sglangReply{routed: string(bytes.TrimSpace(b)), prompt: -1, completion: -1})
}

func endOfReply(f *file, err error) error {
	if err != nil {
		return endOf(f, place{}, err, "base64 or JSON")
	}
	return nil
}
