package runtime

import "outrider/experts"

// WithPressure has a runtime watch a test's memory pressure.
func (o Options) WithPressure(sample func() (experts.PressureSample, error)) Options {
	o.sampler = sampleFunc(sample)
	return o
}

type sampleFunc func() (experts.PressureSample, error)

func (f sampleFunc) Sample() (experts.PressureSample, error) { return f() }
