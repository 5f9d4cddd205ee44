package refmodel

import (
	"fmt"
	"slices"

	"outrider/internal/dequant"
	"outrider/layout"
	"outrider/layout/gguf"
)

// Load reads a GGUF checkpoint's metadata and dense tensors, turned into
// float32 once; the routed experts' tensors are not read. Any shard of a split
// checkpoint will do. A nil fsys means layout.OS(). No file stays open.
func Load(fsys layout.FS, path string) (*Model, error) {
	if fsys == nil {
		fsys = layout.OS()
	}
	file, err := gguf.Open(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("refmodel: load: %w", err)
	}
	m, err := load(file)
	if err != nil {
		return nil, fmt.Errorf("refmodel: load %s: %w", path, err)
	}
	return m, nil
}

func load(file *gguf.File) (*Model, error) {
	c, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	v, err := readVocabulary(file)
	if err != nil {
		return nil, err
	}
	c.Vocab = len(v.tokens)
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Model{Config: c}
	if m.Tokenizer, err = newTokenizer(v); err != nil {
		return nil, err
	}
	name, _ := file.Meta("general.name")
	m.Name, _ = name.Str()
	return m, m.readDense(&dense{file: file})
}

func (m *Model) readDense(d *dense) error {
	c := m.Config
	m.embedding = d.matrix("token_embd.weight", c.Hidden, c.Vocab)
	m.outputNorm = d.vector("output_norm.weight", c.Hidden)
	m.output = m.embedding
	if _, separate := d.file.Tensor("output.weight"); separate {
		m.output = d.matrix("output.weight", c.Hidden, c.Vocab)
	}
	for b := 0; b < c.Blocks && d.err == nil; b++ {
		prefix := fmt.Sprintf("blk.%d.", b)
		m.blocks = append(m.blocks, block{
			attentionNorm: d.vector(prefix+"attn_norm.weight", c.Hidden),
			queryNorm:     d.vector(prefix+"attn_q_norm.weight", c.HeadDim),
			keyNorm:       d.vector(prefix+"attn_k_norm.weight", c.HeadDim),
			query:         d.matrix(prefix+"attn_q.weight", c.Hidden, c.queries()),
			key:           d.matrix(prefix+"attn_k.weight", c.Hidden, c.keys()),
			value:         d.matrix(prefix+"attn_v.weight", c.Hidden, c.keys()),
			attention:     d.matrix(prefix+"attn_output.weight", c.queries(), c.Hidden),
			expertNorm:    d.vector(prefix+"ffn_norm.weight", c.Hidden),
			router:        d.matrix(prefix+"ffn_gate_inp.weight", c.Hidden, c.Experts),
		})
	}
	return d.err
}

// dense reads dense tensors and keeps the first error.
type dense struct {
	file *gguf.File
	raw  []byte
	err  error
}

func (d *dense) vector(name string, n int) []float32 { return d.read(name, n, 1) }

func (d *dense) matrix(name string, cols, rows int) matrix {
	return matrix{rows: rows, cols: cols, data: d.read(name, cols, rows)}
}

// read checks a tensor's shape and dequantises it row by row.
func (d *dense) read(name string, cols, rows int) []float32 {
	if d.err != nil {
		return nil
	}
	t, ok := d.file.Tensor(name)
	want := []int64{int64(cols), int64(rows)}
	if rows == 1 {
		want = want[:1]
	}
	switch {
	case !ok:
		d.err = fmt.Errorf("%w: there is no tensor %s", ErrModel, name)
	case !slices.Equal(t.Dims, want):
		d.err = fmt.Errorf("%w: tensor %s has dimensions %v, want %v", ErrModel, name, t.Dims, want)
	}
	if d.err != nil {
		return nil
	}
	data, err := d.dequantise(t, cols, rows)
	if err != nil {
		d.err = fmt.Errorf("tensor %s: %w", name, err)
	}
	return data
}

func (d *dense) dequantise(t gguf.Tensor, cols, rows int) ([]float32, error) {
	d.raw = resize(d.raw, int(t.Bytes))
	if err := d.file.ReadTensor(t, d.raw); err != nil {
		return nil, err
	}
	format, err := dequant.Lookup(t.TypeName())
	if err != nil {
		return nil, err
	}
	data := make([]float32, rows*cols)
	size := len(d.raw) / rows
	for r := range rows {
		if err := format.Row(d.raw[r*size:(r+1)*size], data[r*cols:(r+1)*cols]); err != nil {
			return nil, err
		}
	}
	return data, nil
}
