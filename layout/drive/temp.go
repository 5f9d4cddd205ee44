package drive

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"time"

	"outrider/layout"
)

const (
	writeBytes = 4 << 20  // of one write
	syncBytes  = 64 << 20 // written between two syncs, so that none takes long
)

// tempFile is the temporary file of random bytes in a folder.
type tempFile struct {
	target
	fs      layout.WriteFS
	writer  layout.WriteFile
	name    string // empty once it has been removed
	reading bool   // target.file is open
}

// writeTemp makes the file, fills it and opens it for reading. Where it fails
// it leaves nothing.
func (c *call) writeTemp(ctx context.Context) (*tempFile, error) {
	size, err := c.tempBytes()
	if err != nil {
		return nil, err
	}
	f, readName, err := c.createTemp()
	if err != nil {
		return nil, err
	}
	if err := f.fill(ctx, c, size); err != nil {
		return nil, errors.Join(err, f.end())
	}
	if f.file, err = c.Reads.Open(readName, layout.Direct); err != nil {
		return nil, errors.Join(fmt.Errorf("drive: open %s: %w", f.path, err), f.end())
	}
	f.reading = true
	// Windows keeps the name of an open file; then it goes at the end.
	_ = f.remove()
	return f, nil
}

// tempBytes is how large the file may be: a multiple of writeBytes.
func (c *call) tempBytes() (int64, error) {
	free, err := c.FS.Free(c.Path)
	if err != nil {
		return 0, fmt.Errorf("drive: ask for free space: %w", err)
	}
	if free/4 < minSpace {
		return 0, fmt.Errorf("drive: %s: %w: %d bytes are free, and a quarter of that is less than the %d that a probe needs: make room, or name a large file on the drive instead",
			c.Path, layout.ErrNoSpace, free, minSpace)
	}
	return min(c.SpaceBytes, free/4) / writeBytes * writeBytes, nil
}

// createTemp makes the empty file and returns the name to open it for reading
// by. On Linux the file loses its own name at once: nothing can leave it behind.
func (c *call) createTemp() (*tempFile, string, error) {
	f, err := c.create()
	if err != nil {
		return nil, "", err
	}
	again := descriptorName(f.writer)
	if again == "" {
		return f, f.name, nil
	}
	if f.remove() == nil && opens(c.Reads, again) {
		return f, again, nil
	}
	// Some file systems and containers cannot open it so: then it has a name.
	if err := f.end(); err != nil {
		return nil, "", err
	}
	if f, err = c.create(); err != nil {
		return nil, "", err
	}
	return f, f.name, nil
}

func (c *call) create() (*tempFile, error) {
	name := filepath.Join(c.Path, ".outrider-probe-"+rand.Text())
	w, err := c.FS.Create(name)
	if err != nil {
		return nil, fmt.Errorf("drive: make a temporary file: %w: choose a folder that can be written to, or name a large file on the drive", err)
	}
	return &tempFile{target: target{path: name}, fs: c.FS, writer: w, name: name}, nil
}

func opens(fsys layout.FS, name string) bool {
	f, err := fsys.Open(name, layout.Buffered)
	return err == nil && f.Close() == nil
}

// fill writes random bytes, which nothing on the way to the drive can compress
// or leave out. It ends early when the time for writing is up.
func (f *tempFile) fill(ctx context.Context, c *call, size int64) error {
	var seed [32]byte
	for i := range 4 {
		binary.LittleEndian.PutUint64(seed[8*i:], mathrand.Uint64())
	}
	random, until := mathrand.NewChaCha8(seed), c.at(writeShare)
	buf := make([]byte, writeBytes)
	for f.bytes < size && ctx.Err() == nil && time.Now().Before(until) {
		_, _ = random.Read(buf) // it has no errors
		if n, err := f.writer.WriteAt(buf, f.bytes); err != nil || n < len(buf) {
			return fmt.Errorf("drive: write %d bytes at %d of %s: %w", len(buf), f.bytes, f.path, errors.Join(err, short(n, len(buf))))
		}
		f.bytes += writeBytes
		if f.bytes%syncBytes == 0 {
			if err := f.sync(); err != nil {
				return err
			}
		}
		c.progress()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.bytes < minSpace {
		return fmt.Errorf("drive: %s: %w: %d bytes were written in %v, want at least %d: allow a longer duration",
			f.path, ErrTime, f.bytes, time.Since(c.began).Round(time.Millisecond), minSpace)
	}
	return f.sync()
}

func (f *tempFile) sync() error {
	if err := f.writer.Sync(); err != nil {
		return fmt.Errorf("drive: sync %s: %w", f.path, err)
	}
	return nil
}

// short is the error of a call that did less than it was asked to, without saying why.
func short(got, want int) error {
	if got < want {
		return fmt.Errorf("only %d of %d bytes", got, want)
	}
	return nil
}

func (f *tempFile) remove() error {
	if f.name == "" {
		return nil
	}
	if err := f.fs.RemoveAll(f.name); err != nil {
		return fmt.Errorf("drive: remove the temporary file: %w", err)
	}
	f.name = ""
	return nil
}

// end closes and removes the file.
func (f *tempFile) end() error {
	var errs []error
	if f.reading {
		errs = append(errs, f.file.Close())
	}
	errs = append(errs, f.writer.Close(), f.remove())
	return errors.Join(errs...)
}
