package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"outrider/layout"
	"outrider/layout/safetensors"
)

// TensorRT-LLM's expert statistic: with EXPERT_STATISTIC_ITER_RANGE=a-b set it
// writes into the folder EXPERT_STATISTIC_PATH
//
//	meta_info.json                             {"num_experts": 256, "num_experts_per_token": 8}
//	rank<r>.safetensors                        tensors "<iteration>_<layer>": uses of each expert
//	rank<r>_raw.safetensors, or
//	token_selected_experts_rank<r>.safetensors tensors "<iteration>_<layer>": ids [tokens, k] (not in all versions)
//
// The layers are the model's block numbers, those with a router.
var (
	trtCountsName = regexp.MustCompile(`^rank(\d{1,6})\.safetensors$`)
	trtRawName    = regexp.MustCompile(`^(?:rank(\d{1,6})_raw|token_selected_experts_rank(\d{1,6}))\.safetensors$`)
	trtKey        = regexp.MustCompile(`^(\d{1,9})_(\d{1,9})$`)
)

const trtMeta = "meta_info.json"

// trtNames reports whether a name of this kind is among the files.
func (p *peek) trtNames(kind *regexp.Regexp) bool {
	return slices.ContainsFunc(p.names, kind.MatchString)
}

// trtRank is what one rank wrote.
type trtRank struct {
	rank int
	file *file
	st   *safetensors.File
}

// trtStatistic is the folder.
type trtStatistic struct {
	shape      layout.Shape
	ranks      []trtRank
	iterations []int
	layers     []int // block numbers
}

// trtPlace is an iteration and a layer.
type trtPlace struct{ iteration, layer int }

func (p trtPlace) key() string { return fmt.Sprintf("%d_%d", p.iteration, p.layer) }

// openTRT opens the files of one kind, and sees that each has a tensor for each
// layer in each iteration that it has.
func openTRT(in *input, kind *regexp.Regexp) (*trtStatistic, error) {
	s := &trtStatistic{}
	var meta *file
	for _, f := range in.files {
		if f.name() == trtMeta {
			meta = f
		}
		if m := kind.FindStringSubmatch(f.name()); m != nil {
			rank, err := strconv.Atoi(slices.Max(m[1:])) // the other group is empty
			if err != nil {
				return nil, err
			}
			s.ranks = append(s.ranks, trtRank{rank: rank, file: f})
		}
	}
	if len(s.ranks) == 0 {
		return nil, fmt.Errorf("%s: no file is named as %v", in.files[0].path, kind)
	}
	slices.SortStableFunc(s.ranks, func(a, b trtRank) int { return cmp.Compare(a.rank, b.rank) })
	told, err := readTRTMeta(meta)
	if err != nil {
		return nil, err
	}
	if err := s.openRanks(); err != nil {
		return nil, err
	}
	told.Layers = len(s.layers)
	if s.shape, err = in.shape(told); err != nil {
		return nil, err
	}
	s.shape.LayerIDs = blockNumbers(s.layers)
	return s, nil
}

// readTRTMeta reads what the folder tells of the model; nothing without the file.
func readTRTMeta(f *file) (layout.Shape, error) {
	if f == nil {
		return layout.Shape{}, nil
	}
	b, err := f.whole()
	if err != nil {
		return layout.Shape{}, err
	}
	var meta struct {
		Experts int `json:"num_experts"`
		TopK    int `json:"num_experts_per_token"`
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return layout.Shape{}, f.damaged(place{}, "want {\"num_experts\": …, \"num_experts_per_token\": …}: %v", err)
	}
	if meta.Experts < 0 || meta.TopK < 0 {
		return layout.Shape{}, f.damaged(place{}, "%d experts, %d of them for a token", meta.Experts, meta.TopK)
	}
	return layout.Shape{Experts: meta.Experts, TopK: meta.TopK}, nil
}

func (s *trtStatistic) openRanks() error {
	iterations, layers := map[int]bool{}, map[int]bool{}
	for i := range s.ranks {
		r := &s.ranks[i]
		st, err := safetensors.Open(layout.OS(), r.file.path)
		if err != nil {
			return r.file.safetensorsError(err)
		}
		r.st = st
		for _, t := range st.Tensors() {
			p, ok := parseTRTKey(t.Name)
			if !ok {
				return r.file.damaged(place{offset: t.Offset}, "tensor %q is not named <iteration>_<layer>", t.Name)
			}
			iterations[p.iteration], layers[p.layer] = true, true
			if len(layers) > layout.MaxLayers {
				return r.file.damaged(place{offset: t.Offset}, "there are more than %d layers", layout.MaxLayers)
			}
		}
	}
	s.iterations, s.layers = sortedKeys(iterations), sortedKeys(layers)
	if len(s.iterations) == 0 {
		return s.ranks[0].file.damaged(place{}, "no iteration was recorded")
	}
	return nil
}

func sortedKeys(set map[int]bool) []int {
	keys := make([]int, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func parseTRTKey(name string) (trtPlace, bool) {
	m := trtKey.FindStringSubmatch(name)
	if m == nil {
		return trtPlace{}, false
	}
	iteration, err1 := strconv.Atoi(m[1])
	layer, err2 := strconv.Atoi(m[2])
	return trtPlace{iteration, layer}, err1 == nil && err2 == nil
}

func (f *file) safetensorsError(err error) error {
	var e *safetensors.FormatError
	if errors.As(err, &e) {
		return f.damaged(place{offset: max(e.Offset, 0)}, "%v: %s", e.Err, e.Reason)
	}
	return f.failed(err)
}

// ints reads the tensor of an iteration and a layer, of whole numbers in so many
// dimensions; there is false where the rank has none.
func (r *trtRank) ints(p trtPlace, rank int) (shape []int64, ints []int64, there bool, err error) {
	t, there := r.st.Tensor(p.key())
	if !there {
		return nil, nil, false, nil
	}
	at := place{offset: t.Offset}
	width := map[string]int{"I64": 8, "I32": 4, "I16": 2, "U8": 1}[t.DType]
	if width == 0 || len(t.Shape) != rank {
		return nil, nil, true, r.file.damaged(at, "tensor %q is %s %v, want whole numbers in %d dimensions", t.Name, t.DType, t.Shape, rank)
	}
	if t.Bytes > int64(MaxHeld*width) {
		return nil, nil, true, r.file.damaged(at, "tensor %q has more than %d numbers: record fewer tokens in an iteration", t.Name, MaxHeld)
	}
	b := make([]byte, t.Bytes)
	if err := r.st.ReadTensor(t, b); err != nil {
		return nil, nil, true, r.file.safetensorsError(err)
	}
	ints = make([]int64, len(b)/width)
	for i := range ints {
		ints[i] = littleInt(b[i*width:], width)
	}
	return t.Shape, ints, true, nil
}
