package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"
)

// Names of the files in a store's folder.
const (
	manifestName = "manifest.json"
	indexName    = "index.bin"
	routerName   = "router.safetensors"
	markerName   = "building.json" // only while building
)

const (
	formatWord       = "outrider store"
	formatVersion    = 1
	maxManifestBytes = 8 << 20
)

// Manifest is what a store says about itself in manifest.json.
type Manifest struct {
	Format  string         `json:"format"`  // "outrider store"
	Version int            `json:"version"` // 1
	ID      string         `json:"id"`      // 32 hex digits, derived from plan and content
	Model   ManifestModel  `json:"model"`
	Source  ManifestSource `json:"source"`
	Shape   Shape          `json:"-"` // in the file: "shape", see wire
	Align   int64          `json:"align"`
	Forms   []Form         `json:"forms"`
	Layers  []int          `json:"layers"` // the form of each layer
	Lanes   []ManifestLane `json:"lanes"`
	// Order is "index", or "given" where the order of experts in the stripes
	// was an option of the builder.
	Order        string        `json:"order"`
	DataBytes    int64         `json:"data_bytes"`
	PaddingBytes int64         `json:"padding_bytes"`
	Index        ManifestIndex `json:"index"`
}

// ManifestModel names the model.
type ManifestModel struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	RestBytes    int64  `json:"rest_bytes"` // tensor bytes that are not routed experts
}

// ManifestSource is the stamp of the checkpoint that the store was built from.
type ManifestSource struct {
	Format string           `json:"format"`
	Files  []CheckpointFile `json:"files"` // paths as they were when the store was built
	// Tensors are, for each layer, those that the projections of its form came from,
	// in that order; nil in stores of builders that did not keep them.
	Tensors [][]ManifestTensor `json:"tensors,omitempty"`
}

// ManifestLane is one lane: a plain file name in the store's folder, or an
// absolute path.
type ManifestLane struct {
	Path   string  `json:"path"`
	Weight float64 `json:"weight"`
	Size   int64   `json:"size"`
}

// ManifestIndex ties index.bin to the manifest.
type ManifestIndex struct {
	Size int64  `json:"size"`
	Sum  string `json:"crc32c"` // eight hex digits: the index's trailer
}

// manifestWire is the manifest as the file has it.
type manifestWire struct {
	*manifestFields
	Shape shapeWire `json:"shape"`
	Sum   string    `json:"manifest_crc32c"`
}

type manifestFields Manifest

// shapeWire is Shape with the file's names.
type shapeWire struct {
	Layers   int   `json:"layers"`
	Experts  int   `json:"experts"`
	TopK     int   `json:"top_k"`
	LayerIDs []int `json:"layer_ids,omitempty"`
}

// The manifest ends with its own checksum: everything before the eight digits
// is what it covers.
const (
	manifestHead = "{\n  \"format\": \"" + formatWord + "\",\n"
	sumDigits    = 8
	manifestTail = "\"\n}\n"
)

// encode returns the bytes of manifest.json.
func (m *Manifest) encode() ([]byte, error) {
	wire := manifestWire{manifestFields: (*manifestFields)(m), Shape: shapeWire(m.Shape), Sum: strings.Repeat("0", sumDigits)}
	data, err := json.MarshalIndent(wire, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("layout: encode manifest: %w", err)
	}
	data = append(data, '\n')
	if len(data) > maxManifestBytes {
		return nil, fmt.Errorf("layout: %w: manifest would have %d bytes, want at most %d", ErrPlan, len(data), maxManifestBytes)
	}
	end := len(data) - len(manifestTail)
	copy(data[end-sumDigits:end], hexSum(crc32.Checksum(data[:end-sumDigits], castagnoli)))
	return data, nil
}

func hexSum(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// decodeManifest reads manifest.json. Path is for messages only.
func decodeManifest(path string, data []byte) (*Manifest, error) {
	var head struct {
		Format  string          `json:"format"`
		Version json.RawMessage `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		if !bytes.HasPrefix(data, []byte(manifestHead)) {
			return nil, fmt.Errorf("layout: %s: %w", path, ErrNotStore)
		}
		return nil, corrupt(path, jsonOffset(err, len(data)), "not JSON: %v", err)
	}
	if head.Format != formatWord {
		return nil, fmt.Errorf("layout: %s: %w: format is %.40q, want %q", path, ErrNotStore, head.Format, formatWord)
	}
	if string(head.Version) != fmt.Sprint(formatVersion) {
		return nil, fmt.Errorf("layout: %s: %w: version is %.20s, this program reads %d: use a newer one, or build the store again",
			path, ErrVersion, head.Version, formatVersion)
	}
	if err := checkManifestSum(path, data); err != nil {
		return nil, err
	}
	m := new(Manifest)
	wire := manifestWire{manifestFields: (*manifestFields)(m)}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&wire); err != nil {
		return nil, corrupt(path, jsonOffset(err, int(dec.InputOffset())), "%v", err)
	}
	m.Shape = Shape(wire.Shape)
	if err := m.check(); err != nil {
		return nil, corrupt(path, 0, "%v", err)
	}
	return m, nil
}

func checkManifestSum(path string, data []byte) error {
	end := len(data) - len(manifestTail)
	if end < sumDigits || string(data[end:]) != manifestTail {
		return corrupt(path, int64(max(end, 0)), "the end is missing or changed")
	}
	at := end - sumDigits
	if got, want := string(data[at:end]), hexSum(crc32.Checksum(data[:at], castagnoli)); got != want {
		return corrupt(path, int64(at), "manifest's checksum is %q, its content has %s", got, want)
	}
	return nil
}

func jsonOffset(err error, otherwise int) int64 {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return syntax.Offset
	case errors.As(err, &kind):
		return kind.Offset
	}
	return int64(otherwise)
}

// check reports the first value that the format does not allow.
func (m *Manifest) check() error {
	if err := m.Shape.Validate(); err != nil {
		return err
	}
	if !isHex(m.ID, 32) {
		return fmt.Errorf("id is %.40q, want 32 hex digits", m.ID)
	}
	if !isPowerOfTwo(m.Align) || m.Align < MinAlign || m.Align > MaxAlign {
		return fmt.Errorf("alignment is %d, want a power of two from %d to %d", m.Align, MinAlign, MaxAlign)
	}
	if len(m.Layers) != m.Shape.Layers {
		return fmt.Errorf("forms for %d layers, want %d", len(m.Layers), m.Shape.Layers)
	}
	if len(m.Forms) < 1 || len(m.Forms) > m.Shape.Layers {
		return fmt.Errorf("%d forms for %d layers", len(m.Forms), m.Shape.Layers)
	}
	for i := range m.Forms {
		if err := m.Forms[i].check(); err != nil {
			return fmt.Errorf("form %d: %w", i, err)
		}
	}
	var data int64
	for l, f := range m.Layers {
		if f < 0 || f >= len(m.Forms) {
			return fmt.Errorf("layer %d has form %d of %d", l, f, len(m.Forms))
		}
		data += m.Forms[f].DataBytes() * int64(m.Shape.Experts)
	}
	if err := m.checkTensors(); err != nil {
		return err
	}
	if err := m.checkLanes(); err != nil {
		return err
	}
	stored := int64(0)
	for _, lane := range m.Lanes {
		stored += lane.Size
	}
	if m.DataBytes != data || m.PaddingBytes != stored-data {
		return fmt.Errorf("%d data and %d padding bytes, the forms and lanes have %d and %d", m.DataBytes, m.PaddingBytes, data, stored-data)
	}
	return nil
}

func (m *Manifest) checkLanes() error {
	if len(m.Lanes) < 1 || len(m.Lanes) > MaxLanes {
		return fmt.Errorf("%d lanes, want 1 to %d", len(m.Lanes), MaxLanes)
	}
	names := make(map[string]bool, len(m.Lanes))
	for i, lane := range m.Lanes {
		if lane.Size < 0 || lane.Size > MaxLaneBytes || lane.Size%laneAlign != 0 {
			return fmt.Errorf("lane %d has size %d, want a multiple of %d up to %d", i, lane.Size, laneAlign, int64(MaxLaneBytes))
		}
		if strings.ContainsAny(lane.Path, `/\`) {
			continue // on another device: taken as it is
		}
		if err := checkLanePath(lane.Path); err != nil {
			return fmt.Errorf("lane %d: %w", i, err)
		}
		if names[lane.Path] {
			return fmt.Errorf("two lanes have the path %s", lane.Path)
		}
		names[lane.Path] = true
	}
	if m.Index.Size < 1 || !isHex(m.Index.Sum, sumDigits) {
		return fmt.Errorf("index has %d bytes and checksum %.20q", m.Index.Size, m.Index.Sum)
	}
	return nil
}

func isHex(s string, digits int) bool {
	if len(s) != digits {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// lanePath is where a lane lies. Elsewhere is where it may lie instead, if it
// has been moved into the store's folder.
func (m *Manifest) lanePath(dir string, lane int) (path, elsewhere string) {
	path = m.Lanes[lane].Path
	if !strings.ContainsAny(path, `/\`) {
		return filepath.Join(dir, path), ""
	}
	return path, filepath.Join(dir, path[strings.LastIndexAny(path, `/\`)+1:])
}

// table starts the table that the index fills.
func (m *Manifest) table() table {
	return table{shape: m.Shape, forms: m.Forms, layers: m.Layers, lanes: len(m.Lanes), width: findWidth(m.Forms)}
}

func (m *Manifest) laneSizes() []int64 {
	sizes := make([]int64, len(m.Lanes))
	for i := range m.Lanes {
		sizes[i] = m.Lanes[i].Size
	}
	return sizes
}
