package router

import (
	"fmt"
	"strings"

	"outrider/layout"
)

// Names lists the predictors that New makes, the default first.
func Names() []string {
	return []string{"online", "transition", "transition-history", "matrix", "recency", "frequency"}
}

// New makes a predictor by its name with default options. An unknown name is
// ErrUnknownPredictor, and the text lists those there are. The oracle is not
// among them: it needs a trace (NewOracle).
func New(name string, shape layout.Shape) (Predictor, error) {
	switch name {
	case "online":
		return NewOnline(shape, OnlineOptions{})
	case "transition":
		return NewTransition(shape)
	case "transition-history":
		return NewHistoryTransition(shape, HistoryTransitionOptions{})
	case "matrix":
		return NewMatrix(shape, MatrixOptions{})
	case "recency":
		return NewRecency(shape)
	case "frequency":
		return NewFrequency(shape)
	}
	return nil, fmt.Errorf("router: %w %q: choose one of %s", ErrUnknownPredictor, name, strings.Join(Names(), ", "))
}
