package safetensors

import (
	"fmt"

	"outrider/layout"
)

// ReadTensor reads a whole tensor of this file into dst, whose length must be
// t.Bytes. It opens the file through the page cache, reads, and closes it again:
// right for what is read once. A file whose size is not what Open saw is
// layout.ErrSourceChanged.
func (f *File) ReadTensor(t Tensor, dst []byte) error {
	own, ok := f.Tensor(t.Name)
	if !ok {
		return fmt.Errorf("safetensors: %s: %w: %q", f.source.Path, ErrNoTensor, t.Name)
	}
	if int64(len(dst)) != own.Bytes {
		return fmt.Errorf("safetensors: read tensor %q: buffer of %d bytes, want %d", t.Name, len(dst), own.Bytes)
	}
	file, err := f.fsys.Open(f.source.Path, layout.Buffered)
	if err != nil {
		return fmt.Errorf("safetensors: open %s: %w", f.source.Path, err)
	}
	if size := file.Size(); size != f.source.Size {
		err = f.wrong(layout.ErrSourceChanged, -1, "it has %d bytes, had %d; open it again", size, f.source.Size)
	} else if len(dst) > 0 {
		err = f.read(file, dst, own.Offset)
	}
	if cerr := file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("safetensors: close %s: %w", f.source.Path, cerr)
	}
	return err
}
