package replay

import (
	"outrider/internal/passes"
	"outrider/internal/runs"
	"outrider/runtime"
	"outrider/trace"
)

// RunOptions are the runtime's options that make it do as a run says. Recall is nil
// if the run forecasts nothing. A run that knows the future knows that of the
// schedule, which is rewound.
func RunOptions(r runs.Run, t *trace.Trace, s *passes.Schedule) (o runtime.Options, recall *Recall, err error) {
	shape := t.Header.Shape
	if r.Keep == runs.Optimum {
		o.Order, err = s.Optimum()
		return o, nil, err
	}
	if o.Order, err = r.NewOrder(shape); err != nil {
		return o, nil, err
	}
	p, err := r.NewPredictor(shape, t)
	if err != nil {
		return o, nil, err
	}
	if p != nil {
		recall = NewRecall(p, shape.Layers, shape.TopK)
		o.Predictor = recall
	}
	o.NoSpeculation = !r.Speculate
	return o, recall, nil
}
