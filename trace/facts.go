package trace

// IDs says which numbering expert ids are in.
type IDs uint8

const (
	IDsUnknown  IDs = iota
	IDsLogical      // the model's own, as its router numbers them
	IDsPhysical     // slots of an engine that copies or moves experts (EPLB)
)

// String is the word used in files: "logical", "physical", "unknown".
func (i IDs) String() string {
	switch i {
	case IDsLogical:
		return "logical"
	case IDsPhysical:
		return "physical"
	}
	return "unknown"
}

// parseIDsWord is the inverse of IDs.String; "" is unknown too.
func parseIDsWord(word string) (IDs, bool) {
	for _, i := range [...]IDs{IDsUnknown, IDsLogical, IDsPhysical} {
		if word == i.String() {
			return i, true
		}
	}
	return IDsUnknown, word == ""
}

// Fact is something that a source told, or did not.
type Fact uint8

const (
	Unknown Fact = iota
	Yes
	No
)

// String is "yes", "no" or "unknown".
func (f Fact) String() string {
	switch f {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "unknown"
}

// FactOf is Yes or No.
func FactOf(b bool) Fact {
	if b {
		return Yes
	}
	return No
}

// pointer is the fact as JSON has it: true, false or null.
func (f Fact) pointer() *bool {
	if f == Unknown {
		return nil
	}
	b := f == Yes
	return &b
}

func factAt(p *bool) Fact {
	if p == nil {
		return Unknown
	}
	return FactOf(*p)
}

// The facts of a header in one byte: two bits each.
func (h *Header) factBits() byte {
	return byte(h.IDs) | byte(h.Ranked)<<2 | byte(h.Sequences)<<4
}

func (h *Header) setFactBits(b byte) {
	h.IDs, h.Ranked, h.Sequences = IDs(b&3), Fact(b>>2&3), Fact(b>>4)
}
