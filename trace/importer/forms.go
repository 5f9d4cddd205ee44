package importer

// form is one way to write routing data, and how to read it.
type form struct {
	Form
	several bool // a recording is several files
	// sniff reports whether the content is surely of this form; nil where only
	// the caller can tell (Options.From).
	sniff func(p *peek) bool
	open  func(in *input) (*content, error)
}

// forms lists them all, ours first. At most one may recognise a content.
var forms = concat(ownForms, jsonForms, textForms, binaryForms, histogramForms)

func concat(lists ...[]form) (all []form) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}
