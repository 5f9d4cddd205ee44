package layout

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
)

// writeFile writes a file of the temporary folder and makes it durable.
func (b *builder) writeFile(name string, data []byte) error {
	f, err := b.fs.Create(filepath.Join(b.temp, name))
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// storeID is derived from the plan and from the checksums of all tensors, so
// that the same content in the same layout always has the same id.
func (b *builder) storeID() ([storeIDBytes]byte, error) {
	t := &b.table
	rows := t.encodeIndex([storeIDBytes]byte{})
	forms, err := json.Marshal(struct {
		Forms  []Form
		Layers []int
	}{t.forms, t.layers})
	if err != nil {
		return [storeIDBytes]byte{}, fmt.Errorf("encode forms: %w", err)
	}
	h := sha256.New()
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(rows)))
	h.Write(n[:])
	h.Write(rows)
	h.Write(forms)
	return [storeIDBytes]byte(h.Sum(nil)), nil
}

// manifest describes the finished store; the index's checksum is still missing.
func (b *builder) manifest(id [storeIDBytes]byte) *Manifest {
	m := &Manifest{
		Format: formatWord, Version: formatVersion, ID: fmt.Sprintf("%x", id),
		Model:  ManifestModel{Name: b.cp.Name, Architecture: b.cp.Architecture, RestBytes: b.cp.RestBytes},
		Source: ManifestSource{Format: b.cp.Format, Files: absoluteFiles(b.cp.Files), Tensors: b.source.sourceTensors()},
		Shape:  b.plan.Shape, Align: b.plan.Align, Forms: b.plan.Forms, Layers: b.plan.Layers,
		Order: "index", DataBytes: b.plan.DataBytes, PaddingBytes: b.plan.PaddingBytes,
	}
	if b.plan.Ordered {
		m.Order = "given"
	}
	for i, lane := range b.plan.Lanes {
		m.Lanes = append(m.Lanes, ManifestLane{Path: b.lanes[i].entry, Weight: lane.Weight, Size: lane.Size})
	}
	return m
}

func absoluteFiles(files []CheckpointFile) []CheckpointFile {
	out := make([]CheckpointFile, len(files))
	for i, f := range files {
		if path, err := filepath.Abs(f.Path); err == nil {
			f.Path = path
		}
		out[i] = f
	}
	return out
}

// writeMeta writes index and manifest, and the index of the copies, and decodes
// what it wrote.
func (b *builder) writeMeta(id [storeIDBytes]byte, copies []byte) error {
	index := b.table.encodeIndex(id)
	m := b.manifest(id)
	m.Index = ManifestIndex{Size: int64(len(index)), Sum: hexSum(binary.LittleEndian.Uint32(index[len(index)-indexTrailer:]))}
	data, err := m.encode()
	if err != nil {
		return err
	}
	if err := b.writeFile(indexName, index); err != nil {
		return err
	}
	if err := b.writeFile(manifestName, data); err != nil {
		return err
	}
	if _, err := openMeta(b.fs, b.temp); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if err := b.writeCopiesIndex(id, copies); err != nil {
		return err
	}
	return errors.Join(b.sameFile(indexName, index), b.sameFile(manifestName, data))
}

// sameFile reads back a small file of the temporary folder.
func (b *builder) sameFile(name string, want []byte) error {
	path := filepath.Join(b.temp, name)
	got, err := readSmall(b.fs, path, int64(len(want)))
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if !bytes.Equal(got, want) {
		return corrupt(path, 0, "read back: the file differs from what was written")
	}
	return nil
}

// commit gives everything its name. The folder comes last: until then there is
// no store, and afterwards it is whole.
func (b *builder) commit() error {
	if err := b.fs.SyncDir(b.temp); err != nil {
		return err
	}
	// All is durable, temporary names too, before the first lane gets its own: from
	// then on it must be whole.
	for _, lane := range b.files() {
		if lane.target == "" {
			continue
		}
		if err := b.fs.SyncDir(filepath.Dir(lane.target)); err != nil {
			return err
		}
	}
	for _, lane := range b.files() {
		if lane.target == "" {
			continue
		}
		if !lane.placed {
			if err := b.fs.Rename(lane.temp, lane.target); err != nil {
				return err
			}
			b.made = append(b.made, lane.target)
		}
		if err := b.fs.SyncDir(filepath.Dir(lane.target)); err != nil {
			return err
		}
	}
	if err := b.fs.Rename(b.temp, b.dir); err != nil {
		return err
	}
	b.made = append(b.made, b.dir)
	for _, name := range []string{journalName, markerName} {
		if err := b.fs.RemoveAll(filepath.Join(b.dir, name)); err != nil {
			return err
		}
	}
	if err := b.fs.SyncDir(b.dir); err != nil {
		return err
	}
	return b.fs.SyncDir(filepath.Dir(b.dir))
}

// undo removes what this run has made. A build that can be resumed keeps it, unless
// it has its name already: then it is a whole store.
func (b *builder) undo() error {
	var errs []error
	if b.resume {
		return nil
	}
	for i := len(b.made) - 1; i >= 0; i-- {
		if err := b.fs.RemoveAll(b.made[i]); err != nil {
			errs = append(errs, fmt.Errorf("layout: build: clean up: %w", err))
		}
	}
	return errors.Join(errs...)
}
