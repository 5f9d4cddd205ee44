package importer

import (
	"errors"
	"io"
	"iter"

	"outrider/trace"
)

// emitter takes the tokens of an import in order, each with the place it comes
// from. It answers with what is wrong with a token, or with errStopped; the
// importer passes any error on. The activation stays the importer's.
type emitter func(f *file, at place, a *trace.Activation) error

// errStopped: nobody reads on.
var errStopped = errors.New("stopped")

// puller turns an importer that pushes tokens into a stream. What stands between
// the two is a coroutine, which stop ends.
type puller struct {
	form   *form
	header trace.Header
	next   func() (*trace.Activation, error, bool)
	end    func()
	err    error
}

func newPuller(f *form, h trace.Header, emit func(emitter) error) *puller {
	p := &puller{form: f, header: h}
	p.next, p.end = iter.Pull2(p.push(emit))
	return p
}

// push runs the importer and yields its tokens, and its error last.
func (p *puller) push(emit func(emitter) error) iter.Seq2[*trace.Activation, error] {
	return func(yield func(*trace.Activation, error) bool) {
		check := trace.NewChecker(&p.header)
		err := emit(func(f *file, at place, a *trace.Activation) error {
			if err := check.Check(a); err != nil {
				return f.damaged(at, "%v", err)
			}
			if !yield(a, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(nil, inForm(p.form, err))
		}
	}
}

// Header describes the trace.
func (p *puller) Header() trace.Header { return p.header }

// Next copies the next token into a.
func (p *puller) Next(a *trace.Activation) error {
	if p.err != nil {
		return p.err
	}
	from, err, ok := p.next()
	switch {
	case !ok:
		p.err = io.EOF
	case err != nil:
		p.err = err
	}
	if p.err != nil {
		return p.err
	}
	ids, weights := append(a.Experts[:0], from.Experts...), a.Weights[:0]
	if p.header.Weights {
		weights = append(weights, from.Weights...)
	}
	*a = *from
	a.Experts, a.Weights = ids, weights
	return nil
}

func (p *puller) stop() error {
	p.end()
	if p.err == nil {
		p.err = io.EOF
	}
	return nil
}
