package layout

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
)

// routerSpace is what the router file will take, at most: a tensor's entry in the
// header has fewer than 200 bytes.
func (b *builder) routerSpace() int64 {
	if b.cp.Routers == nil {
		return 0
	}
	return b.cp.Routers.Bytes(b.plan.Shape) + 200*int64(4*len(b.cp.Routers.Layers)) + 1024
}

// writeRouters writes the router matrices into the temporary folder, tensor by
// tensor, and reads back what it wrote. Without matrices it writes nothing.
func (b *builder) writeRouters(ctx context.Context, id string) (written int64, err error) {
	if b.cp.Routers == nil {
		return 0, nil
	}
	// A header without the sums has the length of the one with them.
	sums := make([]uint32, 0, 4*len(b.cp.Routers.Layers))
	b.eachRouterTensor(func(sized) error { sums = append(sums, 0); return nil })
	head, err := encodeRouterHeader(id, b.cp.Routers, b.plan.Shape, sums)
	if err != nil {
		return 0, err
	}
	path := filepath.Join(b.temp, routerName)
	f, err := b.fs.Create(path)
	if err != nil {
		return 0, err
	}
	written, err = b.writeRouterTensors(ctx, f, int64(len(head)), sums)
	if err == nil {
		if head, err = encodeRouterHeader(id, b.cp.Routers, b.plan.Shape, sums); err == nil {
			_, err = f.WriteAt(head, 0)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	return written, b.readRoutersBack(ctx, path, id)
}

// eachRouterTensor calls do for each tensor in the order of the file.
func (b *builder) eachRouterTensor(do func(sized) error) error {
	for l := range b.cp.Routers.Layers {
		for _, t := range b.cp.Routers.tensors(l, b.plan.Shape) {
			if err := do(t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *builder) writeRouterTensors(ctx context.Context, f WriteFile, at int64, sums []uint32) (int64, error) {
	from := newRouters(b.fs, b.cp)
	i := 0
	err := b.eachRouterTensor(func(t sized) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		raw, err := from.read(t.RouterTensor)
		if err != nil {
			return err
		}
		data, err := storedBytes(t, raw)
		if err != nil {
			return err
		}
		sums[i] = crc32.Checksum(data, castagnoli)
		i++
		_, err = f.WriteAt(data, at)
		at += int64(len(data))
		return err
	})
	return at, err
}

// storedBytes is a tensor as a store keeps it, little-endian: float32, or int32
// for a hash table.
func storedBytes(t sized, raw []byte) ([]byte, error) {
	switch t.Type {
	case "F32", "I32":
		return raw, nil
	case "I64":
		return narrow(t, raw)
	}
	numbers := make([]float32, t.count)
	widen(t.Type, raw, numbers)
	data := make([]byte, 0, 4*t.count)
	for _, x := range numbers {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data, nil
}

// readRoutersBack proves that what was written can be opened and holds its sums.
func (b *builder) readRoutersBack(ctx context.Context, path, id string) error {
	r, err := openRouters(b.fs, path, &Manifest{ID: id, Shape: b.plan.Shape})
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return r.check(ctx, nil, func(d Damage) error {
		return corrupt(d.Lane, d.Offset, "read back: %s: check the device", d.Reason)
	})
}

// check reads all tensors and tells what is wrong with each: its checksum, or,
// with a checkpoint, its numbers.
func (r *Routers) check(ctx context.Context, source *Routers, found func(Damage) error) error {
	for l := range r.Layers {
		tensors := r.tensors(l, r.shape)
		var others []sized
		if source != nil {
			others = source.tensors(l, source.shape)
		}
		for i, t := range tensors {
			if err := ctx.Err(); err != nil {
				return err
			}
			raw, err := r.read(t.RouterTensor)
			reason := ""
			var damage *CorruptError
			switch {
			case errors.As(err, &damage):
				reason = damage.Reason
			case err != nil:
				reason = err.Error()
			case source != nil:
				if reason, err = differs(raw, t, source, others, i); err != nil {
					return err
				}
			}
			if reason == "" {
				continue
			}
			if err := found(Damage{ID: ExpertID{-1, -1}, Lane: r.files[t.File].Path, Offset: t.Offset, Reason: reason}); err != nil {
				return err
			}
		}
	}
	return nil
}

// differs says how a tensor's bytes differ from the checkpoint's numbers.
func differs(raw []byte, t sized, source *Routers, others []sized, i int) (string, error) {
	if i >= len(others) || others[i].name != t.name || others[i].count != t.count {
		return fmt.Sprintf("%s has no counterpart in the checkpoint", t.Source), nil
	}
	theirs, err := source.read(others[i].RouterTensor)
	if err != nil {
		return "", err
	}
	want, err := storedBytes(others[i], theirs)
	if err != nil {
		return err.Error(), nil
	}
	if !bytes.Equal(raw, want) {
		return fmt.Sprintf("%s differs from the checkpoint's %s", t.Source, others[i].Source), nil
	}
	return "", nil
}

// verifyRouters adds what is wrong with the store's router matrices, if it has any.
func verifyRouters(ctx context.Context, store *Store, opts VerifyOptions, c *collector) (bytes int64, err error) {
	r, err := store.Routers()
	if errors.Is(err, ErrNoRouters) {
		return 0, nil
	}
	add := func(d Damage) error { c.add([]Damage{d}); return nil }
	if err != nil {
		d := Damage{ID: ExpertID{-1, -1}, Lane: filepath.Join(store.dir, routerName), Reason: err.Error()}
		var damage *CorruptError
		if errors.As(err, &damage) {
			d.Offset, d.Reason = damage.Offset, damage.Reason
		}
		return 0, add(d)
	}
	var source *Routers
	if opts.Source != nil && opts.Source.Routers != nil {
		source = newRouters(opts.FS, opts.Source)
	}
	return r.files[0].Size, r.check(ctx, source, add)
}
