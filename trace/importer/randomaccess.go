package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// openAt opens a file for reading anywhere: as it lies, or, if it is compressed,
// unpacked in memory.
func (f *file) openAt() (r io.ReaderAt, size int64, closer io.Closer, err error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("importer: %w", err)
	}
	var head [4]byte
	if _, err := file.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, nil, errors.Join(f.failed(err), file.Close())
	}
	if bytes.HasPrefix(head[:], []byte("\x1f\x8b")) || string(head[:]) == "\x28\xb5\x2f\xfd" {
		if err := file.Close(); err != nil {
			return nil, 0, nil, f.failed(err)
		}
		b, err := f.whole()
		return bytes.NewReader(b), int64(len(b)), io.NopCloser(nil), err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, nil, errors.Join(f.failed(err), file.Close())
	}
	return file, info.Size(), file, nil
}
