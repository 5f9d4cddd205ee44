package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	shardPattern = "%s-%05d-of-%05d.safetensors"
	indexSuffix  = ".safetensors.index.json"
	maxShards    = 99999 // five digits in the name
)

// ShardName is the name of shard no (from 0) of count: with the usual stem,
// "model", "model-00001-of-00003.safetensors".
func ShardName(stem string, no, count int) string {
	return fmt.Sprintf(shardPattern, stem, no+1, count)
}

// IndexName is the name of the index beside the shards:
// "model.safetensors.index.json".
func IndexName(stem string) string { return stem + indexSuffix }

// CutBytes cuts the tensors, in the order in which they were added, into shards
// of at most most bytes of data; a larger tensor has a shard of its own. It
// returns how many tensors each shard has.
func (w *Writer) CutBytes(most int64) (counts []int) {
	counts = []int{0}
	left := most
	for i := range w.tensors {
		n := w.tensors[i].bytes
		if counts[len(counts)-1] > 0 && n > left {
			counts, left = append(counts, 0), most
		}
		counts[len(counts)-1]++
		left -= n
	}
	return counts
}

// CutShards cuts the tensors, in the order in which they were added, into so
// many shards of about equal bytes, fewer if there are fewer tensors, and
// returns how many tensors each has.
func (w *Writer) CutShards(shards int) (counts []int) {
	shards = max(min(shards, len(w.tensors)), 1)
	var total, done int64
	for i := range w.tensors {
		total += w.tensors[i].bytes
	}
	counts = make([]int, shards)
	at := 0
	for i := range w.tensors {
		// Go on to the next shard when this one has its share, or when the tensors
		// that are left are just enough to give every further shard one.
		full := float64(done) >= float64(total)*float64(at+1)/float64(shards)
		if at < shards-1 && counts[at] > 0 && (full || len(w.tensors)-i == shards-1-at) {
			at++
		}
		counts[at]++
		done += w.tensors[i].bytes
	}
	return counts
}

// WriteShards writes the tensors as files of so many tensors each, and the index
// last. create makes the file of a name without a folder; WriteShards closes
// what it made, also after an error, but removes nothing. Counts that do not
// make up all tensors are an error before anything is written.
func (w *Writer) WriteShards(stem string, counts []int, create func(name string) (io.WriteCloser, error)) error {
	if w.err != nil {
		return w.err
	}
	if err := w.checkCounts(counts); err != nil {
		return err
	}
	weightMap := make(map[string]string, len(w.tensors))
	var total int64
	rest := w.tensors
	for i, n := range counts {
		name := ShardName(stem, i, len(counts))
		for _, t := range rest[:n] {
			weightMap[t.name] = name
			total += t.bytes
		}
		err := writeNamed(name, create, func(out io.Writer) error {
			_, err := w.file(out, rest[:n])
			return err
		})
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return writeNamed(IndexName(stem), create, func(out io.Writer) error {
		return writeIndex(out, weightMap, total)
	})
}

func (w *Writer) checkCounts(counts []int) error {
	sum := 0
	for _, n := range counts {
		if n < 0 || n > len(w.tensors)-sum {
			return fmt.Errorf("safetensors: write: shards of %v tensors, but there are %d", counts, len(w.tensors))
		}
		sum += n
	}
	if sum != len(w.tensors) || len(counts) < 1 || len(counts) > maxShards {
		return fmt.Errorf("safetensors: write: %d shards take %d of %d tensors, want all in 1 to %d shards", len(counts), sum, len(w.tensors), maxShards)
	}
	return nil
}

func writeNamed(name string, create func(string) (io.WriteCloser, error), write func(io.Writer) error) error {
	out, err := create(name)
	if err != nil {
		return fmt.Errorf("safetensors: write: create %s: %w", name, err)
	}
	if err := errors.Join(write(out), out.Close()); err != nil {
		return fmt.Errorf("safetensors: write: %s: %w", name, err)
	}
	return nil
}

func writeIndex(out io.Writer, weightMap map[string]string, total int64) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Metadata  map[string]int64  `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}{map[string]int64{"total_size": total}, weightMap})
}
