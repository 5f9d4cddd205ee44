package widen

import (
	"context"
	"errors"
	"fmt"
	"io"

	"outrider/layout"
	"outrider/layout/gguf"
)

// chunk is about how much of a tensor is read at once.
const chunk = 1 << 20

// Report is what was written.
type Report struct {
	Bytes int64
	// Uneven counts the blocks, or plain numbers, whose copies are not equal since
	// the exact quotient has no encoding.
	Uneven int64
}

// Write writes the enlarged model as one GGUF file. Tensors are read and written a
// few rows at a time: memory is that of the header and a few MiB. progress (may be
// nil) is told the bytes that were written, of about the total. An error leaves
// out with a part of the file.
func (p *Plan) Write(ctx context.Context, out io.Writer, progress func(done, total int64)) (Report, error) {
	w := &gguf.Writer{Version: uint32(p.file.Version()), Align: p.align}
	for _, s := range p.settings {
		w.Set(s.key, s.value)
	}
	source := &shards{fsys: p.fsys, files: p.file.Shards()}
	counted := &watched{ctx: ctx, out: out, total: p.HeaderBytes + p.TensorBytes, progress: progress}
	var report Report
	for _, t := range p.tensors {
		w.Tensor(t.name, t.source.Type, t.dims, func(out io.Writer) error {
			uneven, err := t.write(source, out)
			report.Uneven += uneven
			return err
		})
	}
	n, err := w.WriteTo(counted)
	if err = errors.Join(err, source.close()); err != nil {
		return Report{}, fmt.Errorf("widen: %w", err)
	}
	report.Bytes = n
	return report, nil
}

// watched stops when the context ends, and tells how far it is.
type watched struct {
	ctx         context.Context
	out         io.Writer
	done, total int64
	progress    func(done, total int64)
}

func (w *watched) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.out.Write(b)
	w.done += int64(n)
	if w.progress != nil {
		w.progress(min(w.done, w.total), w.total)
	}
	return n, err
}

// shards keeps the file open that is being read. For one goroutine.
type shards struct {
	fsys  layout.FS
	files []layout.CheckpointFile
	at    int
	open  layout.File
}

// read fills b from a tensor, from a byte of it on.
func (s *shards) read(t gguf.Tensor, b []byte, from int64) error {
	if s.open == nil || s.at != t.Shard {
		if err := s.close(); err != nil {
			return err
		}
		file, err := s.fsys.Open(s.files[t.Shard].Path, layout.Buffered)
		if err != nil {
			return err
		}
		s.open, s.at = file, t.Shard
		if want := s.files[t.Shard].Size; file.Size() != want {
			return fmt.Errorf("%w: %s has %d bytes, had %d", layout.ErrSourceChanged, s.files[t.Shard].Path, file.Size(), want)
		}
	}
	n, err := s.open.ReadAt(b, t.Offset+from)
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: read %s at byte %d: %w", s.files[t.Shard].Path, t.Name, t.Offset+from, err)
}

func (s *shards) close() error {
	if s.open == nil {
		return nil
	}
	err := s.open.Close()
	s.open = nil
	return err
}
