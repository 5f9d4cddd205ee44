package importer

import "outrider/trace"

// formTRTRaw is TensorRT-LLM's record of the experts of each token. An iteration
// is one forward pass of the engine over the tokens of all its requests, which
// are not named.
const formTRTRaw = "trtllm-raw"

func sniffTRTRaw(p *peek) bool { return p.trtNames(trtRawName) }

func openTRTRaw(in *input) (*content, error) {
	s, err := openTRT(in, trtRawName)
	if err != nil {
		return nil, err
	}
	if len(s.ranks) > 1 {
		in.note("the tokens of %d ranks follow one another in each iteration. Without attention data parallelism all ranks route the same tokens: then name the file of one rank.", len(s.ranks))
	}
	h := trace.Header{Shape: s.shape, Sequences: trace.No, Source: in.sourceText(formTRTRaw)}
	return &content{header: h, emit: s.emit}, nil
}

// emit tells the tokens iteration by iteration, and in each rank by rank.
func (s *trtStatistic) emit(out emitter) error {
	b := newBlock(s.shape, false)
	var a trace.Activation
	for i, iteration := range s.iterations {
		pos, told := int64(0), false
		for k := range s.ranks {
			r := &s.ranks[k]
			b.reset()
			there, err := s.gather(r, iteration, b)
			if err != nil {
				return err
			}
			told = told || there
			n, err := b.tokens()
			if err != nil {
				return r.file.damaged(place{}, "iteration %d: %v", iteration, err)
			}
			for token := range n {
				b.token(token, &a)
				a.Seq, a.Pos, a.Token, a.Phase = int64(i), pos, -1, trace.PhaseUnknown
				if err := out(r.file, place{}, &a); err != nil {
					return err
				}
				pos++
			}
		}
		if !told {
			return s.ranks[0].file.damaged(place{}, "iteration %d has no tensors", iteration)
		}
	}
	return nil
}

// gather reads a rank's rows of an iteration, of all layers; there is false where
// it has none of any layer.
func (s *trtStatistic) gather(r *trtRank, iteration int, b *block) (there bool, err error) {
	row := make([]int32, s.shape.TopK)
	for l, layer := range s.layers {
		p := trtPlace{iteration, layer}
		shape, ids, ok, err := r.ints(p, 2)
		if err != nil {
			return false, err
		}
		if ok != there && l > 0 {
			return false, r.file.damaged(place{}, "iteration %d has ids of some layers only: tensor %q or one of a layer before it is missing", iteration, p.key())
		}
		if there = ok; !ok {
			continue
		}
		if shape[1] != int64(s.shape.TopK) {
			return false, r.file.damaged(place{}, "tensor %q has shape %v, want [tokens, %d]", p.key(), shape, s.shape.TopK)
		}
		for i := 0; i < len(ids); i += len(row) {
			for k := range row {
				id := ids[i+k]
				if id < 0 || id >= int64(s.shape.Experts) {
					return false, r.file.damaged(place{}, "tensor %q, token %d: expert id %d is outside 0 to %d", p.key(), i/len(row), id, s.shape.Experts-1)
				}
				row[k] = int32(id)
			}
			if err := b.add(l, row, nil); err != nil {
				return false, r.file.damaged(place{}, "tensor %q: %v", p.key(), err)
			}
		}
	}
	return there, nil
}
