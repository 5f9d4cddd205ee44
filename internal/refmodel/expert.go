package refmodel

import (
	"fmt"

	"github.com/viterin/vek/vek32"

	"outrider/internal/dequant"
)

// computeExpert runs one expert, down(silu(gate x) * up x), for the tokens of
// the slots and writes each result to its slot of outputs.
func (r *runner) computeExpert(e expert, slots []int32) error {
	c, s := r.model.Config, &r.scratch
	gateUp, err := expertInputs(e, c)
	if err != nil {
		return err
	}
	down, err := expertPart(e, "down", c.ExpertHidden, c.Hidden)
	if err != nil {
		return err
	}
	n := len(slots)
	s.inner = resize(s.inner, 2*n*c.ExpertHidden)
	in, gates, ups, out := s.views(n)
	for i, slot := range slots {
		t := int(slot) / c.TopK
		in[i] = s.normed[t*c.Hidden : (t+1)*c.Hidden]
		gates[i] = s.inner[i*c.ExpertHidden : (i+1)*c.ExpertHidden]
		ups[i] = s.inner[(n+i)*c.ExpertHidden : (n+i+1)*c.ExpertHidden]
		out[i] = s.outputs[int(slot)*c.Hidden : (int(slot)+1)*c.Hidden]
	}
	if err := r.product(gates, gateUp[0], in); err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	if err := r.product(ups, gateUp[1], in); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	for i := range n {
		gate(gates[i], ups[i])
	}
	if err := r.product(out, down, gates); err != nil {
		return fmt.Errorf("down: %w", err)
	}
	return nil
}

// expertInputs is the gate and the up projection, cut from one tensor where
// the checkpoint has them fused (gate rows first).
func expertInputs(e expert, c Config) ([2]weights, error) {
	if _, fused := e.part("gate_up"); fused {
		w, err := expertPart(e, "gate_up", c.Hidden, 2*c.ExpertHidden)
		if err != nil {
			return [2]weights{}, err
		}
		return [2]weights{w.rowsFrom(0, c.ExpertHidden), w.rowsFrom(c.ExpertHidden, c.ExpertHidden)}, nil
	}
	gate, err := expertPart(e, "gate", c.Hidden, c.ExpertHidden)
	if err != nil {
		return [2]weights{}, err
	}
	up, err := expertPart(e, "up", c.Hidden, c.ExpertHidden)
	return [2]weights{gate, up}, err
}

func expertPart(e expert, name string, cols, rows int) (weights, error) {
	w, ok := e.part(name)
	if !ok {
		return weights{}, fmt.Errorf("%w: no projection %q", ErrExperts, name)
	}
	if w.cols != cols || w.rows != rows || len(w.data)%rows != 0 {
		return weights{}, fmt.Errorf("%w: projection %q has %d columns, %d rows and %d bytes, want %d columns and %d rows",
			ErrExperts, name, w.cols, w.rows, len(w.data), cols, rows)
	}
	return w, nil
}

// product multiplies each x by w into the y of the same place. Rows are
// dequantised once for all x. F32 matrices are used where they lie.
func (r *runner) product(y [][]float32, w weights, x [][]float32) error {
	if w.typ == "F32" {
		return r.tensors.product(y, w, x)
	}
	format, err := dequant.Lookup(w.typ)
	if err != nil {
		return err
	}
	size := len(w.data) / w.rows
	r.scratch.row = resize(r.scratch.row, w.cols)
	row := r.scratch.row
	for i := range w.rows {
		if err := format.Row(w.data[i*size:(i+1)*size], row); err != nil {
			return err
		}
		for j := range x {
			y[j][i] = vek32.Dot(row, x[j])
		}
	}
	return nil
}
