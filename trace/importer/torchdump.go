package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"outrider/trace/importer/internal/torchfile"
)

// sglangDump is a file of SGLang's expert distribution recorder, written with
// torch.save.
type sglangDump struct {
	file  *file
	torch *torchfile.File
	close io.Closer
	root  *torchfile.Dict
}

// isZip reports a zip file, which a file of torch.save is.
func isZip(p *peek) bool { return bytes.HasPrefix(p.head, []byte("PK\x03\x04")) }

// mentions reports whether the head has these texts: a pickle is the archive's
// first entry and not compressed.
func (p *peek) mentions(texts ...string) bool {
	for _, text := range texts {
		if !bytes.Contains(p.head, []byte(text)) {
			return false
		}
	}
	return true
}

func (f *file) openDump() (*sglangDump, error) {
	r, size, closer, err := f.openAt()
	if err != nil {
		return nil, err
	}
	t, err := torchfile.Open(r, size)
	if err != nil {
		return nil, errors.Join(f.torchError(err), closer.Close())
	}
	root, ok := t.Root.(*torchfile.Dict)
	if !ok {
		err := f.damaged(place{}, "the file holds %s, want the dict of SGLang's expert distribution recorder", torchfile.Name(t.Root))
		return nil, errors.Join(err, closer.Close())
	}
	return &sglangDump{f, t, closer, root}, nil
}

// torchError names the file and the place in it.
func (f *file) torchError(err error) error {
	var e *torchfile.Error
	if errors.As(err, &e) {
		return f.damaged(place{offset: e.Offset}, "%v", err)
	}
	return f.failed(err)
}

// ints reads the tensor of whole numbers under a key, which must have so many
// dimensions.
func (d *sglangDump) ints(dict *torchfile.Dict, key string, rank int) (shape []int64, numbers []int64, err error) {
	v, there := dict.Get(key)
	t, ok := v.(*torchfile.Tensor)
	if !ok || len(t.Shape) != rank {
		what := "nothing"
		if there {
			what = torchfile.Name(v)
		}
		return nil, nil, d.wrong("%s is %s, want a tensor of %d dimensions", key, what, rank)
	}
	numbers, err = d.torch.Ints(t)
	if err != nil {
		return nil, nil, d.file.torchError(fmt.Errorf("%s: %w", key, err))
	}
	return t.Shape, numbers, nil
}

func (d *sglangDump) wrong(format string, args ...any) error {
	return d.file.damaged(place{}, format, args...)
}

// list is a list of whole numbers; nil, false where the value is none.
func intList(v any) ([]int64, bool) {
	l, ok := v.(*torchfile.List)
	if !ok {
		return nil, false
	}
	ints := make([]int64, len(l.Items))
	for i, item := range l.Items {
		if ints[i], ok = item.(int64); !ok {
			return nil, false
		}
	}
	return ints, true
}

// records are the passes of a per_token or per_pass dump.
func (d *sglangDump) records() ([]*torchfile.Dict, error) {
	v, _ := d.root.Get("records")
	list, ok := v.(*torchfile.List)
	if !ok {
		return nil, d.wrong("records is %s, want a list: the dump is none of mode per_token or per_pass", torchfile.Name(v))
	}
	passes := make([]*torchfile.Dict, len(list.Items))
	for i, item := range list.Items {
		if passes[i], ok = item.(*torchfile.Dict); !ok {
			return nil, d.wrong("record %d is %s, want a dict", i, torchfile.Name(item))
		}
	}
	if len(passes) == 0 {
		return nil, d.wrong("the dump holds no pass: was the recorder started (start_expert_distribution_record)?")
	}
	return passes, nil
}
