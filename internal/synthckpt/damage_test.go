package synthckpt_test

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"outrider/internal/synthckpt"
	"outrider/layout/checkpoint"
	"outrider/layout/discover"
	"outrider/layout/gguf"
	"outrider/layout/safetensors"
)

// small is a checkpoint of few experts, for what is done many times.
func small(t *testing.T, family synthckpt.Info) *synthckpt.Model {
	t.Helper()
	m, err := synthckpt.Plan(synthckpt.Options{Family: family.Name, Format: family.Format, Layers: layersOf(family), Experts: 2})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// One tensor of the last MoE layer's experts is taken away, each kind of them in
// turn: the model is refused, by an error that names the block.
func TestDroppedTensor(t *testing.T) {
	for _, family := range families(t) {
		t.Run(family.Name+"/"+family.Format, func(t *testing.T) {
			t.Parallel()
			m := small(t, family)
			last := m.Shape.LayerID(m.Shape.Layers - 1)
			done := map[string]bool{}
			for _, x := range m.Tensors {
				if !x.Routed || x.Predict || x.Block != last || done[kindOf(x.Name)] {
					continue
				}
				done[kindOf(x.Name)] = true
				fsys, path, _ := write(t, without(m, x.Name), 1)
				_, err := checkpoint.Read(fsys, path)
				if !errors.Is(err, discover.ErrExperts) || !strings.Contains(err.Error(), strconv.Itoa(last)) {
					t.Errorf("without %s: got %v, want ErrExperts that names block %d", x.Name, err, last)
				}
			}
		})
	}
}

// kindOf is a tensor's name without the numbers of block and expert.
func kindOf(name string) string {
	segments := strings.Split(name, ".")
	for i, s := range segments {
		if _, err := strconv.Atoi(s); err == nil {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, ".")
}

// One of three files is taken away: the model is refused, and the error names
// what is missing. Tensor-parallel files have no index, so there it must be one
// with experts.
func TestRemovedShard(t *testing.T) {
	for _, family := range families(t) {
		t.Run(family.Name+"/"+family.Format, func(t *testing.T) {
			t.Parallel()
			fsys, path, files := write(t, small(t, family), 3)
			gone := files[1]
			want := error(safetensors.ErrMissingShard)
			switch {
			case family.Format == synthckpt.GGUF:
				want = gguf.ErrMissingShard
			case strings.Contains(gone, "-TP-"):
				gone, want = files[len(files)-2], discover.ErrExperts
			}
			if err := fsys.RemoveAll(gone); err != nil {
				t.Fatal(err)
			}
			_, err := checkpoint.Read(fsys, path)
			if !errors.Is(err, want) || (want != discover.ErrExperts && !strings.Contains(err.Error(), filepath.Base(gone))) {
				t.Errorf("without %s: got %v, want %v that names it", gone, err, want)
			}
		})
	}
}

// With the wish for it, the experts of blocks that predict are laid out, too.
func TestPredictingBlocks(t *testing.T) {
	some := false
	for _, family := range families(t) {
		m := small(t, family)
		ahead := m.RoutedBytes()
		for _, x := range m.Tensors {
			if x.Routed && !x.Predict {
				ahead -= x.Bytes
			}
		}
		if ahead == 0 {
			continue
		}
		some = true
		fsys, path, _ := write(t, m, 1)
		cp, err := checkpoint.ReadWith(fsys, path, checkpoint.Options{Predict: true})
		if err != nil {
			t.Errorf("%s as %s: %v", family.Name, family.Format, err)
			continue
		}
		if _, bytes := sources(&cp); bytes != m.RoutedBytes() || cp.Shape.Layers != m.Shape.Layers+1 {
			t.Errorf("%s as %s: got experts of %d bytes in %d layers, want %d in %d", family.Name, family.Format,
				bytes, cp.Shape.Layers, m.RoutedBytes(), m.Shape.Layers+1)
		}
	}
	if !some {
		t.Error("no family has experts in a block that predicts")
	}
}
