package layout

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
)

// router.safetensors: the length of the header, the header, the tensors as F32
// (hash tables as I32) in the order of the header. The header ends with its own
// checksum, as the manifest does, and spaces up to a multiple of 8.
//
// Version 2 is version 1 with hash tables; a file without any is written as 1, so
// that older programs read it.
const (
	routerWord      = "outrider routers"
	routerVersion   = "1"
	routerVersion2  = "2"
	routerTail      = "\"}}"
	maxRouterHeader = 8 << 20
	lengthBytes     = 8
)

// routerEntry is one tensor of the header.
type routerEntry struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// encodeRouterHeader returns what stands before the tensor data, the length
// included. sums are those of the tensors, in order.
func encodeRouterHeader(store string, c *CheckpointRouters, shape Shape, sums []uint32) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	var end int64
	version, tokens := routerVersion, ""
	for l := range c.Layers {
		if c.Layers[l].Hash.Type != "" {
			version, tokens = routerVersion2, fmt.Sprintf(`"tokens":"%d",`, c.Tokens)
		}
		for _, t := range c.tensors(l, shape) {
			entry, err := json.Marshal(routerEntry{DType: t.storedType(), Shape: t.shape, Offsets: [2]int64{end, end + 4*t.count}})
			if err != nil {
				return nil, fmt.Errorf("layout: encode routers: %w", err)
			}
			end += 4 * t.count
			fmt.Fprintf(&b, "%q:%s,", routerTensorName(l, t.name), entry)
		}
	}
	var all strings.Builder
	for _, sum := range sums {
		all.WriteString(hexSum(sum))
	}
	fmt.Fprintf(&b, `"__metadata__":{"format":%q,"version":%q,"store":%q,"layers":"%d","experts":"%d","width":"%d",%s"scoring":%q,"groups":"%d","groups_used":"%d","normalised":"%t","scale":%q,"sums":%q,"crc32c":"`,
		routerWord, version, store, len(c.Layers), shape.Experts, c.Width, tokens, c.Scoring, c.Groups, c.GroupsUsed, c.Normalised,
		strconv.FormatFloat(c.Scale, 'g', -1, 64), all.String())
	b.WriteString(hexSum(crc32.Checksum(b.Bytes(), castagnoli)))
	b.WriteString(routerTail)
	for b.Len()%lengthBytes != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > maxRouterHeader {
		return nil, fmt.Errorf("layout: %w: the header of the router matrices would have %d bytes, want at most %d", ErrPlan, b.Len(), maxRouterHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(b.Len())), b.Bytes()...), nil
}

func routerTensorName(layer int, name string) string { return fmt.Sprintf("layers.%d.%s", layer, name) }

// openRouters reads the header of a store's router file.
func openRouters(fsys FS, path string, m *Manifest) (*Routers, error) {
	f, err := fsys.Open(path, Buffered)
	if err != nil {
		return nil, fmt.Errorf("layout: open routers: %w", err)
	}
	defer f.Close()
	head, err := readRouterHeader(f, path)
	if err != nil {
		return nil, err
	}
	c, err := decodeRouterHeader(path, head, f.Size()-lengthBytes-int64(len(head)), m.ID, m.Shape)
	if err != nil {
		return nil, err
	}
	return &Routers{CheckpointRouters: *c, shape: m.Shape, fsys: fsys, files: []CheckpointFile{{Path: path, Size: f.Size()}}}, nil
}

func readRouterHeader(f File, path string) ([]byte, error) {
	var length [lengthBytes]byte
	if f.Size() < lengthBytes {
		return nil, corrupt(path, 0, "it has %d bytes, fewer than a length takes", f.Size())
	}
	if err := readFull(f, length[:], 0); err != nil {
		return nil, fmt.Errorf("layout: open routers: read %s: %w", path, err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxRouterHeader || int64(n) > f.Size()-lengthBytes {
		return nil, corrupt(path, 0, "the header would have %d bytes, want at most %d", n, min(maxRouterHeader, f.Size()-lengthBytes))
	}
	head := make([]byte, n)
	if err := readFull(f, head, lengthBytes); err != nil {
		return nil, fmt.Errorf("layout: open routers: read %s: %w", path, err)
	}
	return head, nil
}

// decodeRouterHeader reads the header of a router file whose tensors have so
// many bytes in all. Offsets become those of the file.
func decodeRouterHeader(path string, head []byte, data int64, store string, shape Shape) (*CheckpointRouters, error) {
	var entries map[string]json.RawMessage
	var meta map[string]string
	if err := json.Unmarshal(head, &entries); err != nil {
		return nil, corrupt(path, lengthBytes+jsonOffset(err, 0), "the header is not JSON: %v", err)
	}
	if err := json.Unmarshal(entries["__metadata__"], &meta); err != nil || meta["format"] != routerWord {
		return nil, corrupt(path, lengthBytes, "its format is %.40q, want %q", meta["format"], routerWord)
	}
	if v := meta["version"]; v != routerVersion && v != routerVersion2 {
		return nil, fmt.Errorf("layout: %s: %w: version is %.20q, this program reads %s and %s", path, ErrVersion, v, routerVersion, routerVersion2)
	}
	if err := checkRouterSum(path, head); err != nil {
		return nil, err
	}
	if meta["store"] != store {
		return nil, corrupt(path, lengthBytes, "it belongs to the store with id %.40q, not to %s", meta["store"], store)
	}
	c, sums, err := routerRuleOf(meta, shape)
	if err != nil {
		return nil, corrupt(path, lengthBytes, "%v", err)
	}
	delete(entries, "__metadata__")
	if err := c.fromEntries(entries, sums, shape, lengthBytes+int64(len(head)), data); err != nil {
		return nil, corrupt(path, lengthBytes, "%v", err)
	}
	return c, nil
}

func checkRouterSum(path string, head []byte) error {
	trimmed := bytes.TrimRight(head, " ")
	end := len(trimmed) - len(routerTail)
	if end < sumDigits || string(trimmed[end:]) != routerTail {
		return corrupt(path, lengthBytes+int64(max(end, 0)), "the end of the header is missing or changed")
	}
	at := end - sumDigits
	if got, want := string(trimmed[at:end]), hexSum(crc32.Checksum(trimmed[:at], castagnoli)); got != want {
		return corrupt(path, lengthBytes+int64(at), "the header's checksum is %q, its content has %s", got, want)
	}
	return nil
}

// routerRuleOf reads the metadata; sums is the list of checksums in hex.
func routerRuleOf(meta map[string]string, shape Shape) (c *CheckpointRouters, sums string, err error) {
	number := func(name string) int {
		n, e := strconv.Atoi(meta[name])
		if e != nil && err == nil {
			err = fmt.Errorf("%s is %.20q, want a number", name, meta[name])
		}
		return n
	}
	c = &CheckpointRouters{Width: number("width")}
	c.Groups, c.GroupsUsed, c.Scoring = number("groups"), number("groups_used"), Scoring(meta["scoring"])
	layers, experts := number("layers"), number("experts")
	if meta["version"] == routerVersion2 {
		c.Tokens = number("tokens")
	}
	if c.Normalised = meta["normalised"] == "true"; !c.Normalised && meta["normalised"] != "false" && err == nil {
		err = fmt.Errorf("normalised is %.20q, want true or false", meta["normalised"])
	}
	scale, e := strconv.ParseFloat(meta["scale"], 64)
	if c.Scale = scale; e != nil && err == nil {
		err = fmt.Errorf("scale is %.20q, want a number", meta["scale"])
	}
	if err == nil && (layers != shape.Layers || experts != shape.Experts) {
		err = fmt.Errorf("it has %d layers x %d experts, the store %d x %d", layers, experts, shape.Layers, shape.Experts)
	}
	return c, meta["sums"], err
}

// fromEntries fills in the tensors, which start at byte start of the file and
// fill its data.
func (c *CheckpointRouters) fromEntries(entries map[string]json.RawMessage, sums string, shape Shape, start, data int64) error {
	if err := c.validateSize(shape); err != nil {
		return err
	}
	c.Layers = make([]CheckpointRouter, shape.Layers)
	var end int64
	for l := range c.Layers {
		c.Layers[l].present(entries, l)
		for _, t := range c.tensors(l, shape) {
			name := routerTensorName(l, t.name)
			if err := checkEntry(entries[name], name, t, end); err != nil {
				return err
			}
			delete(entries, name)
			if len(sums) < sumDigits {
				return fmt.Errorf("tensor %s has no checksum", name)
			}
			sum, err := strconv.ParseUint(sums[:sumDigits], 16, 32)
			if err != nil {
				return fmt.Errorf("tensor %s has checksum %q", name, sums[:sumDigits])
			}
			sums = sums[sumDigits:]
			*t.RouterTensor = RouterTensor{Source: name, Type: t.Type, Span: Span{Offset: start + end, Bytes: 4 * t.count}, sum: uint32(sum), summed: true}
			end += 4 * t.count
		}
	}
	if len(entries) > 0 || len(sums) > 0 || end != data {
		return fmt.Errorf("%d tensors, %d checksum digits and %d bytes belong to nothing", len(entries), len(sums), data-end)
	}
	return c.validate(shape, []CheckpointFile{{Size: start + data}})
}

// present notes which tensors a layer has, so that CheckpointRouters.tensors lists them.
func (r *CheckpointRouter) present(entries map[string]json.RawMessage, layer int) {
	r.Weight.Type = "F32"
	for name, t := range map[string]*RouterTensor{"bias": &r.Bias, "selection_bias": &r.Selection, hashName: &r.Hash} {
		if entries[routerTensorName(layer, name)] != nil {
			t.Type = sized{name: name}.storedType()
		}
	}
}

// checkEntry holds one entry of the header to what must stand there.
func checkEntry(raw json.RawMessage, name string, t sized, end int64) error {
	var entry routerEntry
	if err := json.Unmarshal(raw, &entry); err != nil {
		return fmt.Errorf("tensor %s is missing or no tensor: %v", name, err)
	}
	if entry.DType != t.Type || !slices.Equal(entry.Shape, t.shape) || entry.Offsets != [2]int64{end, end + 4*t.count} {
		return fmt.Errorf("tensor %s is %s %v at %v, want %s %v from byte %d", name, entry.DType, entry.Shape, entry.Offsets, t.Type, t.shape, end)
	}
	return nil
}
