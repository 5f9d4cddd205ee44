package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"outrider/layout"
	"outrider/trace"
)

// shape joins what a form told (0 where it did not) with what the caller did.
// They must agree; what neither tells is ErrNeedShape.
func (in *input) shape(told layout.Shape) (layout.Shape, error) {
	s := told
	var missing []string
	for _, part := range []struct {
		name  string
		told  *int
		given int
	}{
		{"layers", &s.Layers, in.opts.Layers},
		{"experts", &s.Experts, in.opts.Experts},
		{"top-k", &s.TopK, in.opts.TopK},
	} {
		switch {
		case *part.told == 0 && part.given == 0:
			missing = append(missing, "--"+part.name)
		case *part.told == 0:
			*part.told = part.given
		case part.given != 0 && part.given != *part.told:
			return s, fmt.Errorf("%s: the data has %s %d, but %d was given", in.files[0].path, part.name, *part.told, part.given)
		}
	}
	if len(missing) > 0 {
		return s, &shapeError{path: in.files[0].path, missing: missing}
	}
	if err := s.Validate(); err != nil {
		return s, in.files[0].damaged(place{}, "%v", err)
	}
	return s, nil
}

// shapeError is the ErrNeedShape of what neither the form nor the caller told.
type shapeError struct {
	path    string
	missing []string // flags
}

func (e *shapeError) Error() string {
	return fmt.Sprintf("%s: %v: give %s (the model's config.json has them)", e.path, ErrNeedShape, strings.Join(e.missing, " and "))
}

func (e *shapeError) Unwrap() error { return ErrNeedShape }

// onlyExperts reports whether an error says that the number of experts is all
// that is missing.
func onlyExperts(err error) bool {
	var need *shapeError
	return errors.As(err, &need) && len(need.missing) == 1 && need.missing[0] == "--experts"
}

// leastExperts reads everything once for the highest expert id, where only the
// number of experts is missing: one more than that is the least there can be.
func leastExperts(f *form, in *input) (int, error) {
	probe := *in
	probe.notes, probe.opts.Experts = nil, layout.MaxExperts
	c, err := f.open(&probe)
	if err != nil {
		return 0, err
	}
	most := int32(-1)
	switch {
	case c.histogram != nil:
		for _, t := range c.histogram.Tables {
			for _, row := range t.Counts {
				for x := int32(len(row)) - 1; x > most; x-- {
					if row[x] > 0 {
						most = x
					}
				}
			}
		}
	default:
		err = c.emit(func(_ *file, _ place, a *trace.Activation) error {
			most = max(most, slices.Max(a.Experts))
			return nil
		})
	}
	// Damage is reported when what comes before it is read again.
	var damage *trace.CorruptError
	if err != nil && !errors.As(err, &damage) {
		return 0, err
	}
	return int(most) + 1, nil
}
