package trace

// Checker proves that activations fit a header: what every reader and writer of
// this package does. For those who make streams of their own. Not safe for
// concurrent use.
type Checker struct{ check checker }

// NewChecker makes a checker. The header must be valid and is kept.
func NewChecker(h *Header) *Checker { return &Checker{newChecker(h)} }

// Check says how the activation breaks the rules, or nil. The text names the
// layer but no file or line: the caller knows those.
func (c *Checker) Check(a *Activation) error { return c.check.check(a) }
