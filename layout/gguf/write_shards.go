package gguf

import (
	"fmt"
	"io"
	"strings"
)

// ShardName is the name of shard no (from 0) of count, as llama.cpp's tools give
// it: "m-00001-of-00003.gguf".
func ShardName(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no+1, count)
}

// Shards says how many tensors go into which shard so that count shards hold about
// equal bytes and each at least one tensor, as far as there are tensors.
func (w *Writer) Shards(count int) []int {
	var total, done int64
	sizes := make([]int64, len(w.tensors))
	for i, t := range w.tensors {
		sizes[i], _ = t.typ.Bytes(t.dims) // a tensor without a size is reported when writing
		total += sizes[i]
	}
	if count < 1 {
		return nil
	}
	cut, shard := make([]int, count), 0
	for i, size := range sizes {
		// The next shard starts where this one has its share, or where the tensors
		// left are needed to give each shard one.
		full := float64(done)*float64(count) >= float64(total)*float64(shard+1)
		if cut[shard] > 0 && shard+1 < count && (full || len(sizes)-i <= count-shard-1) {
			shard++
		}
		cut[shard]++
		done += size
	}
	return cut
}

// WriteShards writes the checkpoint as shards with as many tensors as tensors says
// for each; -1, allowed in the last place, means the rest. Metadata goes to the
// first shard, split.* to each, as llama.cpp writes them. create gives the file of
// a name (ShardName); each is closed before the next is asked for, also after an
// error, and the files written so far are then the caller's to remove. The number
// is of all bytes written.
func (w *Writer) WriteShards(prefix string, tensors []int, create func(name string) (io.WriteCloser, error)) (int64, error) {
	rest, err := w.check()
	if err != nil {
		return 0, err
	}
	cut, err := w.checkCut(tensors)
	if err != nil {
		return 0, err
	}
	var total int64
	for i, count := range cut {
		var kvs []writerKey
		if i == 0 {
			kvs = append(kvs, w.kvs...)
		}
		kvs = append(kvs, writerKey{keySplitNo, uint16(i)}, writerKey{keySplitTensors, int32(len(w.tensors))},
			writerKey{keySplitCount, uint16(len(cut))})
		name := ShardName(prefix, i, len(cut))
		n, err := w.writeShard(name, create, kvs, rest[:count])
		if total += n; err != nil {
			return total, fmt.Errorf("gguf: shard %s: %w", name, err)
		}
		rest = rest[count:]
	}
	return total, nil
}

func (w *Writer) writeShard(name string, create func(string) (io.WriteCloser, error), kvs []writerKey, tensors []writerTensor) (int64, error) {
	out, err := create(name)
	if err != nil {
		return 0, err
	}
	n, err := w.writeFile(out, kvs, tensors)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return n, err
}

// checkCut makes sure that each tensor is in a shard, and nothing else is.
func (w *Writer) checkCut(tensors []int) ([]int, error) {
	const most = 1<<16 - 1 // split.count is a uint16
	if len(tensors) < 1 || len(tensors) > most {
		return nil, fmt.Errorf("gguf: write: %d shards, want 1 to %d", len(tensors), most)
	}
	for _, e := range w.kvs {
		if strings.HasPrefix(e.key, "split.") {
			return nil, fmt.Errorf("gguf: write: key %q is the shards' own; do not set it", e.key)
		}
	}
	left, cut := len(w.tensors), make([]int, len(tensors))
	for i, n := range tensors {
		if n == -1 && i == len(tensors)-1 {
			n = left
		}
		if n < 0 || n > left {
			return nil, fmt.Errorf("gguf: write: shard %d wants %d tensors, %d are left", i+1, n, left)
		}
		cut[i], left = n, left-n
	}
	if left > 0 {
		return nil, fmt.Errorf("gguf: write: %d tensors are in no shard", left)
	}
	return cut, nil
}
