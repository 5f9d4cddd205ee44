package drive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"outrider/layout"
)

const (
	profileFormat   = "outrider drive profile"
	profileVersion  = 1
	maxProfileBytes = 4 << 20
)

// Load reads a profile that Save wrote. A file that is none is ErrNotProfile,
// one of another version ErrVersion, and one with contents that no probe gives
// a *layout.CorruptError.
func Load(path string) (*Profile, error) {
	f, err := layout.OS().Open(path, layout.Buffered) // refuses pipes, which would hang
	if err != nil {
		return nil, fmt.Errorf("drive: load %s: %w", path, err)
	}
	defer f.Close()
	if f.Size() > maxProfileBytes {
		return nil, fmt.Errorf("drive: %s: %w: it has %d bytes, want at most %d", path, ErrNotProfile, f.Size(), maxProfileBytes)
	}
	data := make([]byte, f.Size())
	if n, err := f.ReadAt(data, 0); n < len(data) {
		return nil, fmt.Errorf("drive: load %s: %w", path, errors.Join(err, short(n, len(data))))
	}
	return decode(path, data)
}

// Save writes the profile as JSON, with a line feed at the end. It replaces
// what is there, whole or not at all.
func (p *Profile) Save(path string) (err error) {
	if err := p.check(); err != nil {
		return fmt.Errorf("drive: save %s: the profile is not one of a probe: %w", path, err)
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("drive: save %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("drive: save %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("drive: save %s: %w", path, err)
			_ = os.Remove(f.Name()) // the failure before says more
		}
	}()
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return layout.OS().SyncDir(filepath.Dir(path))
}

// decode checks word, version and contents, in this order.
func decode(path string, data []byte) (*Profile, error) {
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil || head.Format != profileFormat {
		return nil, fmt.Errorf("drive: %s: %w: make one with outrider probe --save", path, ErrNotProfile)
	}
	if head.Version != profileVersion {
		return nil, fmt.Errorf("drive: %s: %w: it has version %d, this program reads %d: probe again", path, ErrVersion, head.Version, profileVersion)
	}
	p := new(Profile)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(p); err != nil {
		return nil, &layout.CorruptError{Path: path, Offset: dec.InputOffset(), Reason: fmt.Sprintf("%v: probe again", err)}
	}
	if err := p.check(); err != nil {
		return nil, &layout.CorruptError{Path: path, Reason: fmt.Sprintf("%v: probe again", err)}
	}
	return p, nil
}
