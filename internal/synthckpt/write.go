package synthckpt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"outrider/layout"
)

// Target says where a Model is written, and how.
type Target struct {
	FS layout.WriteFS // nil means layout.OS()
	// Out is what to make, and must not exist. As GGUF: a file whose name ends in
	// ".gguf", or with several shards the name they have in common, as in
	// "m-00001-of-00003.gguf" for m.gguf. As safetensors: a folder.
	Out    string
	Shards int // files of weights; 0 means 1; fewer if there are fewer tensors
	// Progress is told how many bytes of tensors are written; nil means nobody asks.
	Progress func(done, total int64)
}

// Report says what was written.
type Report struct {
	Files       []string // in the order of writing; the first one, or its folder, opens the checkpoint
	TensorBytes int64    // without headers
}

// Write writes the checkpoint. Data is streamed: what a few thousand blocks take
// is in memory. Nothing is overwritten, and nothing is left after an error; an
// existing target is fs.ErrExist.
func (m *Model) Write(ctx context.Context, to Target) (*Report, error) {
	if to.FS == nil {
		to.FS = layout.OS()
	}
	if to.Shards < 0 || to.Shards > maxShards {
		return nil, fmt.Errorf("synthckpt: %w: %d shards, want 1 to %d", ErrOptions, to.Shards, maxShards)
	}
	to.Shards = max(to.Shards, 1)
	o := &output{ctx: ctx, to: to, model: m}
	for i := range m.Tensors {
		o.total += m.Tensors[i].Bytes
	}
	write := o.gguf
	if m.Format == Safetensors {
		write = o.safetensors
	}
	if err := write(); err != nil {
		return nil, errors.Join(fmt.Errorf("synthckpt: write %s: %w", to.Out, err), o.remove())
	}
	return &Report{Files: o.files, TensorBytes: o.total}, nil
}

// maxShards is as many as five digits can number.
const maxShards = 99999

// bufferBytes is how much is written at a time.
const bufferBytes = 64 << 10

// output is one checkpoint being written.
type output struct {
	ctx         context.Context
	to          Target
	model       *Model
	files       []string
	folder      bool // to.Out is a folder that was made
	done, total int64
}

// remove takes away what was made.
func (o *output) remove() (err error) {
	for _, name := range o.files {
		err = errors.Join(err, o.to.FS.RemoveAll(name))
	}
	if o.folder {
		err = errors.Join(err, o.to.FS.RemoveAll(o.to.Out))
	}
	return err
}

// create makes a file in a folder.
func (o *output) create(folder string) func(name string) (io.WriteCloser, error) {
	return func(name string) (io.WriteCloser, error) {
		path := filepath.Join(folder, name)
		file, err := o.to.FS.Create(path)
		if err != nil {
			return nil, err
		}
		o.files = append(o.files, path)
		return &outFile{file, bufio.NewWriterSize(io.NewOffsetWriter(file, 0), bufferBytes)}, nil
	}
}

// whole makes one file with what write gives.
func (o *output) whole(folder, name string, write func(io.Writer) error) error {
	out, err := o.create(folder)(name)
	if err != nil {
		return err
	}
	return errors.Join(write(out), out.Close())
}

// data is the function that streams a tensor.
func (o *output) data(t *Tensor) func(io.Writer) error {
	return func(out io.Writer) error { return o.model.writeData(t, watched{out, o}) }
}

// watched counts what is written, and stops when nobody wants it any more.
type watched struct {
	io.Writer
	o *output
}

func (w watched) Write(p []byte) (int, error) {
	if err := w.o.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.Writer.Write(p)
	w.o.done += int64(n)
	if w.o.to.Progress != nil {
		w.o.to.Progress(w.o.done, w.o.total)
	}
	return n, err
}

// outFile is a file that is written in large pieces.
type outFile struct {
	file layout.WriteFile
	*bufio.Writer
}

func (f *outFile) Close() error {
	return errors.Join(f.Flush(), f.file.Sync(), f.file.Close())
}
