package importer

import (
	"bytes"

	"outrider/trace"
)

// ownForms are this project's.
var ownForms = []form{
	{
		Form:  Form{Name: "outrider", Tool: "Outrider", Title: "binary trace"},
		sniff: func(p *peek) bool { return bytes.HasPrefix(p.head, []byte("\x93ORTRACE")) },
		open:  openOwn,
	},
	{
		Form: Form{Name: "jsonl", Tool: "Outrider", Title: "neutral JSON lines: a header object, then a token a line"},
		sniff: func(p *peek) bool {
			keys := p.keys()
			return keys["layers"] && keys["experts"] && keys["top_k"] && !keys["kind"]
		},
		open: openOwn,
	},
	{
		Form:  Form{Name: "histogram", Tool: "Outrider", Title: "neutral JSON histogram: tables of counts", Histogram: true},
		sniff: func(p *peek) bool { keys := p.keys(); return keys["kind"] && keys["tables"] },
		open: func(in *input) (*content, error) {
			r, err := in.files[0].open()
			if err != nil {
				return nil, err
			}
			defer r.Close() // nothing was written
			h, err := trace.ReadHistogram(r)
			if err != nil {
				return nil, in.files[0].failed(err)
			}
			return &content{histogram: h}, nil
		},
	},
}

// openOwn leaves checking, and telling what a torn file still holds, to trace.
func openOwn(in *input) (*content, error) {
	f, err := trace.OpenFile(in.files[0].path)
	if err != nil {
		return nil, err
	}
	return &content{stream: f, close: f.Close}, nil
}
