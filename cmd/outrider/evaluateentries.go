package main

import (
	"context"
	"os"
	"slices"

	"outrider/internal/evaluate"
	"outrider/router"
	"outrider/router/learned"
	"outrider/trace"
)

// learnedName is the predictor that comes from a file of outrider train.
const learnedName = "learned"

// entries are the rows to be: the predictors in their order, each with token ids,
// without them, or both. Files are read once here, so that what cannot be used is
// found before anything is replayed.
func (c *evaluateCmd) entries(t *trace.Trace) ([]evaluate.Entry, error) {
	var list []evaluate.Entry
	add := func(e evaluate.Entry) {
		if c.TokenIDs != "no" {
			list = append(list, e)
		}
		if c.TokenIDs != "yes" {
			e.HideTokens = true
			if c.TokenIDs == "both" {
				e.Name += ", no ids"
			}
			list = append(list, e)
		}
	}
	names := c.Predictors
	if c.Learned != "" && !slices.Contains(names, learnedName) {
		names = append(slices.Clone(names), learnedName)
	}
	for _, name := range names {
		e := evaluate.Entry{Name: name, New: named(name)}
		if name == learnedName {
			e.New = learnedFrom(c.Learned)
			if _, err := e.New(t); err != nil {
				return nil, err
			}
		}
		add(e)
	}
	if c.State != "" {
		e := evaluate.Entry{New: savedIn(c.State)}
		p, err := e.New(t)
		if err != nil {
			return nil, err
		}
		e.Name = p.Name() + ", saved"
		add(e)
	}
	return list, nil
}

// named makes a predictor that needs no more than its name.
func named(name string) func(*trace.Trace) (router.Predictor, error) {
	return func(t *trace.Trace) (router.Predictor, error) {
		if name == "oracle" {
			return router.NewOracle(t.Header.Shape, t)
		}
		return router.New(name, t.Header.Shape)
	}
}

// savedIn makes the predictor that is saved in a file.
func savedIn(path string) func(*trace.Trace) (router.Predictor, error) {
	return func(t *trace.Trace) (router.Predictor, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close() // nothing was written
		p, err := router.LoadFor(f, t.Header.Shape)
		if err != nil {
			return nil, inputf("--state %s: %s", path, message(context.Background(), err))
		}
		return p, nil
	}
}

// learnedFrom makes a predictor by a network in a file.
func learnedFrom(path string) func(*trace.Trace) (router.Predictor, error) {
	return func(t *trace.Trace) (router.Predictor, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close() // nothing was written
		m, err := learned.Load(f)
		if err != nil {
			return nil, inputf("--learned %s: %s", path, message(context.Background(), err))
		}
		if own, want := m.Dims().Shape, t.Header.Shape; !own.SameSize(want) {
			return nil, inputf("--learned %s: the network is for %d layers x %d experts, top %d; the trace has %d x %d, top %d: train it on traces of this model",
				path, own.Layers, own.Experts, own.TopK, want.Layers, want.Experts, want.TopK)
		}
		return learned.New(m)
	}
}
