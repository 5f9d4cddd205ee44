package ggufwrite

import (
	"bytes"
	"fmt"
)

// ShardName is the name of shard no (from 0) of count: "m-00001-of-00003.gguf".
func ShardName(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no+1, count)
}

// Split writes the checkpoint as shards, one for each number of tensors given;
// the last number may be left out by giving -1 for "the rest". Metadata goes
// to the first shard, split.* to each.
func (w *Writer) Split(tensors ...int) ([][]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	rest := w.tensors
	var shards [][]byte
	for i, n := range tensors {
		if n < 0 {
			n = len(rest)
		}
		if n > len(rest) {
			return nil, fmt.Errorf("ggufwrite: shard %d wants %d tensors, %d are left", i, n, len(rest))
		}
		part := Writer{}
		if i == 0 {
			part.kvs = append(part.kvs, w.kvs...)
		}
		part.Set("split.no", uint16(i))
		part.Set("split.tensors.count", int32(len(w.tensors)))
		part.Set("split.count", uint16(len(tensors)))
		var buf bytes.Buffer
		if _, err := w.file(&buf, part.kvs, rest[:n]); err != nil {
			return nil, err
		}
		shards, rest = append(shards, buf.Bytes()), rest[n:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("ggufwrite: %d tensors are in no shard", len(rest))
	}
	return shards, nil
}
