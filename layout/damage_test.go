package layout_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// damagedStore is a small store on two lanes, the second one on another drive.
func damagedStore(t testing.TB) (*memfs.FS, layout.Checkpoint) {
	t.Helper()
	fsys := memfs.New(memfs.Options{})
	mustMkdir(t, fsys, "/drive")
	cp := source(t, fsys, smallModel)
	build(t, fsys, "/m", cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/lane-1.bin"}}})
	return fsys, cp
}

const (
	manifestPath = "/m/manifest.json"
	indexPath    = "/m/index.bin"
)

// edit replaces the bytes of a file.
func edit(t testing.TB, fsys *memfs.FS, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := fsys.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := fsys.WriteFile(path, change(data)); err != nil {
		t.Fatal(err)
	}
}

func replace(old, new string) func([]byte) []byte {
	return func(data []byte) []byte {
		if !bytes.Contains(data, []byte(old)) {
			panic("test: " + old + " is not there")
		}
		return bytes.Replace(data, []byte(old), []byte(new), 1)
	}
}

func flip(at int) func([]byte) []byte {
	return func(data []byte) []byte { data[at] ^= 0x10; return data }
}

func cutOff(n int) func([]byte) []byte {
	return func(data []byte) []byte { return data[:len(data)-n] }
}

// wrong is what a damaged store must answer: a sentinel, or damage of a file.
type wrong struct {
	sentinel error
	path     string
	text     string
}

func (w wrong) check(t *testing.T, name string, err error) {
	t.Helper()
	if !strings.Contains(fmt.Sprint(err), w.text) {
		t.Errorf("%s: got %v, want a text with %q", name, err, w.text)
	}
	var damage *layout.CorruptError
	switch {
	case w.sentinel != nil && !errors.Is(err, w.sentinel):
		t.Errorf("%s: got %v, want %v", name, err, w.sentinel)
	case w.sentinel == nil && (!errors.As(err, &damage) || damage.Path != w.path):
		t.Errorf("%s: got %v, want damage of %s", name, err, w.path)
	}
}

func TestOpenRefusesDamage(t *testing.T) {
	lane0, lane1 := "/m/lane-0.bin", "/drive/lane-1.bin"
	for _, test := range []struct {
		name   string
		path   string
		change func([]byte) []byte
		want   wrong
	}{
		{"manifest empty", manifestPath, func([]byte) []byte { return nil }, wrong{layout.ErrNotStore, "", manifestPath}},
		{"manifest not JSON", manifestPath, func([]byte) []byte { return []byte("GGUF") }, wrong{layout.ErrNotStore, "", manifestPath}},
		{"manifest of others", manifestPath, replace("outrider store", "cargo workspace"), wrong{layout.ErrNotStore, "", "cargo workspace"}},
		{"manifest of a newer version", manifestPath, replace(`"version": 1`, `"version": 2`), wrong{layout.ErrVersion, "", "version is 2"}},
		{"manifest without version", manifestPath, replace(`"version"`, `"wersion"`), wrong{layout.ErrVersion, "", "this program reads 1"}},
		{"manifest's syntax", manifestPath, replace(`"align":`, `"align";`), wrong{nil, manifestPath, "not JSON"}},
		{"manifest's numbers", manifestPath, replace(`"top_k": 2`, `"top_k": 3`), wrong{nil, manifestPath, "checksum"}},
		{"manifest's names", manifestPath, replace("test model", "Test model"), wrong{nil, manifestPath, "checksum"}},
		{"manifest's checksum", manifestPath, func(b []byte) []byte { b[len(b)-5] ^= 1; return b }, wrong{nil, manifestPath, "checksum"}},
		{"manifest cut", manifestPath, cutOff(100), wrong{nil, manifestPath, "not JSON"}},
		{"manifest's last byte", manifestPath, cutOff(1), wrong{nil, manifestPath, "end is missing"}},
		{"manifest too large", manifestPath, func(b []byte) []byte { return append(b, make([]byte, 8<<20)...) }, wrong{nil, manifestPath, "want at most"}},
		{"index empty", indexPath, func([]byte) []byte { return nil }, wrong{nil, indexPath, "less than a header"}},
		{"index's magic", indexPath, flip(0), wrong{nil, indexPath, "starts with"}},
		{"index's version", indexPath, flip(8), wrong{layout.ErrVersion, "", "version is 17"}},
		{"index's header size", indexPath, flip(12), wrong{nil, indexPath, "header's checksum"}},
		{"index's layers", indexPath, flip(16), wrong{nil, indexPath, "header's checksum"}},
		{"index's id", indexPath, flip(40), wrong{nil, indexPath, "header's checksum"}},
		{"index's reserve", indexPath, flip(55), wrong{nil, indexPath, "header's checksum"}},
		{"index's header checksum", indexPath, flip(61), wrong{nil, indexPath, "header's checksum"}},
		{"index's expert", indexPath, flip(64 + 4), wrong{nil, indexPath, "checksum"}},
		{"index's offset", indexPath, flip(64 + 8), wrong{nil, indexPath, "checksum"}},
		{"index's sums", indexPath, flip(64 + 40), wrong{nil, indexPath, "checksum"}},
		{"index's trailer", indexPath, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, wrong{nil, indexPath, "checksum"}},
		{"index cut", indexPath, cutOff(8), wrong{nil, indexPath, "has"}},
		{"index too long", indexPath, func(b []byte) []byte { return append(b, 0) }, wrong{nil, indexPath, "want at most"}},
		{"lane cut", lane0, cutOff(4096), wrong{nil, lane0, "the manifest says"}},
		{"lane too long", lane1, func(b []byte) []byte { return append(b, 0) }, wrong{nil, lane1, "the manifest says"}},
	} {
		fsys, _ := damagedStore(t)
		edit(t, fsys, test.path, test.change)
		s, err := layout.OpenStore(fsys, "/m", layout.Buffered)
		if err == nil {
			s.Close()
		}
		test.want.check(t, test.name, err)
	}
}

func TestOpenRefusesMissingFiles(t *testing.T) {
	for _, test := range []struct {
		path string
		want wrong
	}{
		{manifestPath, wrong{layout.ErrNotStore, "", manifestPath}},
		{indexPath, wrong{fs.ErrNotExist, "", indexPath}},
		{"/m/lane-0.bin", wrong{fs.ErrNotExist, "", "lane 0 at /m/lane-0.bin"}},
		{"/drive/lane-1.bin", wrong{fs.ErrNotExist, "", "lane 1 at /drive/lane-1.bin"}},
	} {
		fsys, _ := damagedStore(t)
		if err := fsys.RemoveAll(test.path); err != nil {
			t.Fatal(err)
		}
		_, err := layout.OpenStore(fsys, "/m", layout.Buffered)
		test.want.check(t, test.path, err)
	}
}

func TestLaneIsFoundInTheStoresFolder(t *testing.T) {
	fsys, cp := damagedStore(t)
	if err := fsys.Rename("/drive/lane-1.bin", "/m/lane-1.bin"); err != nil {
		t.Fatal(err)
	}
	s := open(t, fsys, "/m", layout.Buffered)
	if got := s.Lanes()[1].Path; got != "/m/lane-1.bin" {
		t.Errorf("got lane at %s, want it in the store's folder", got)
	}
	sameExperts(t, fsys, cp, s)
}

// TestFlippedBitsOfTheMetadataAreFound: no change of a single bit may be taken
// as if nothing had happened. One bit of every byte is tried.
func TestFlippedBitsOfTheMetadataAreFound(t *testing.T) {
	fsys, _ := damagedStore(t)
	m := open(t, fsys, "/m", layout.Buffered).Manifest()
	for path, decode := range map[string]func([]byte) error{
		manifestPath: func(data []byte) error { _, err := layout.DecodeManifest(data); return err },
		indexPath:    func(data []byte) error { return layout.DecodeIndex(data, m) },
	} {
		data, err := fsys.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range data {
			bit := 8*at + at%8
			data[bit/8] ^= 1 << (bit % 8)
			err := decode(data)
			data[bit/8] ^= 1 << (bit % 8)
			var damage *layout.CorruptError
			if !errors.As(err, &damage) && !errors.Is(err, layout.ErrNotStore) && !errors.Is(err, layout.ErrVersion) {
				t.Fatalf("%s with bit %d of byte %d flipped: got %v, want one of three errors", path, bit%8, bit/8, err)
			}
		}
	}
}

// TestIndexBounds gives wrong rows right checksums: the bounds must catch them.
func TestIndexBounds(t *testing.T) {
	const row = 8 + 2*16 + 4*4 // of two lanes and four projections
	put32 := binary.LittleEndian.PutUint32
	put64 := binary.LittleEndian.PutUint64
	for _, test := range []struct {
		name   string
		change func(rows []byte)
		text   string
	}{
		{"layer", func(b []byte) { put32(b, 1) }, "row 0 is for layer 1"},
		{"expert", func(b []byte) { put32(b[4:], 6) }, "expert 6"},
		{"expert twice", func(b []byte) { put32(b[4:], 1) }, "comes twice"},
		{"offset beyond any file", func(b []byte) { put64(b[8:], 1<<63) }, "beyond any file"},
		{"bytes beyond any file", func(b []byte) { put64(b[16:], 1<<62) }, "beyond any file"},
		{"offset beyond the lane", func(b []byte) { put64(b[8:], 1<<40) }, "of lane 0, which has"},
		{"offset odd", func(b []byte) { put64(b[8:], 8) }, "not aligned"},
		{"offset without bytes", func(b []byte) { put64(b[24:], 512) }, "0 bytes at 512"},
		{"piece missing", func(b []byte) { put64(b[16:], 0) }, "want"},
		{"record twice", func(b []byte) { copy(b[2*row+8:2*row+40], b[8:40]) }, "lies in the record before"},
		{"sum where no projection is", func(b []byte) { put32(b[6*row+row-4:], 1) }, "zeros belong"},
	} {
		fsys, _ := damagedStore(t)
		s := open(t, fsys, "/m", layout.Buffered)
		m := *s.Manifest()
		data, err := fsys.ReadFile(indexPath)
		if err != nil {
			t.Fatal(err)
		}
		test.change(data[64:])
		layout.SealIndex(data, &m)
		wrong{nil, "index.bin", test.text}.check(t, test.name, layout.DecodeIndex(data, &m))
	}
}

func TestManifestBounds(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*layout.Manifest)
		text   string
	}{
		{"shape", func(m *layout.Manifest) { m.Shape.Layers = 1 << 30 }, "layers"},
		{"id", func(m *layout.Manifest) { m.ID = "x" }, "id is"},
		{"alignment", func(m *layout.Manifest) { m.Align = 100 }, "alignment is 100"},
		{"layers", func(m *layout.Manifest) { m.Layers = m.Layers[1:] }, "forms for 2 layers"},
		{"form number", func(m *layout.Manifest) { m.Layers = []int{0, 0, 9} }, "has form 9"},
		{"no forms", func(m *layout.Manifest) { m.Forms = nil }, "0 forms"},
		{"form's alignment", func(m *layout.Manifest) { m.Forms[0].Align = 3 }, "alignment is 3"},
		{"record size", func(m *layout.Manifest) { m.Forms[0].Bytes = 1 << 50 }, "record has"},
		{"projections overlap", func(m *layout.Manifest) { m.Forms[0].Projections[1].Offset = 0 }, "starts at 0"},
		{"projection outside", func(m *layout.Manifest) { m.Forms[0].Projections[3].Offset = 1 << 62 }, "starts at"},
		{"projection too large", func(m *layout.Manifest) { m.Forms[0].Projections[0].Bytes = 1 << 62 }, "bytes in a record of"},
		{"projection without name", func(m *layout.Manifest) { m.Forms[0].Projections[0].Name = "" }, "no name of its own"},
		{"no lanes", func(m *layout.Manifest) { m.Lanes = nil }, "0 lanes"},
		{"lane size", func(m *layout.Manifest) { m.Lanes[0].Size = 1 << 60 }, "lane 0 has size"},
		{"lane path", func(m *layout.Manifest) { m.Lanes[0].Path = ".." }, "neither absolute"},
		{"sums", func(m *layout.Manifest) { m.DataBytes++ }, "padding bytes"},
		{"index", func(m *layout.Manifest) { m.Index.Sum = "" }, "index has"},
	} {
		fsys, _ := damagedStore(t)
		m := open(t, fsys, "/m", layout.Buffered).Manifest()
		test.change(m)
		data, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		_, err = layout.DecodeManifest(data)
		wrong{nil, "manifest.json", test.text}.check(t, test.name, err)
	}
}

func TestVerifyFindsDamage(t *testing.T) {
	fsys, cp := damagedStore(t)
	s := open(t, fsys, "/m", layout.Buffered)
	id := layout.ExpertID{Layer: 1, Index: 2}
	var p layout.Placement
	if err := s.Locate(id, &p); err != nil {
		t.Fatal(err)
	}
	at, path := int(p.Reads[0].Offset), s.Lanes()[p.Reads[0].Lane].Path
	form := s.Manifest().Forms[1]
	last := form.Projections[1]
	for _, test := range []struct {
		name   string
		path   string
		at     int
		want   layout.Damage
		reason string
	}{
		{"first byte", path, at, layout.Damage{ID: id, Projection: "gate_up", Lane: path, Offset: int64(at)}, "checksum"},
		{"last byte", path, at + int(last.Offset+last.Bytes) - 1, layout.Damage{ID: id, Projection: "down", Lane: path, Offset: int64(at) + last.Offset}, "checksum"},
		{"padding", path, at + int(form.Bytes) - 1, layout.Damage{ID: id, Lane: path, Offset: int64(at) + last.Offset + last.Bytes}, "padding is not zero"},
		{"end of the lane", path, int(s.Manifest().Lanes[p.Reads[0].Lane].Size) - 1, layout.Damage{ID: layout.ExpertID{Layer: -1, Index: -1}, Lane: path}, "between records"},
	} {
		edit(t, fsys, test.path, flip(test.at))
		report, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: fsys, Dir: "/m"})
		if err != nil || report.Found != 1 {
			t.Fatalf("%s: got %+v and %v, want one finding", test.name, report, err)
		}
		got := report.Damages[0]
		if test.want.ID.Layer < 0 {
			test.want.Offset = got.Offset
		}
		if !strings.Contains(got.Reason, test.reason) {
			t.Errorf("%s: got reason %q, want %q", test.name, got.Reason, test.reason)
		}
		test.want.Reason = got.Reason
		if got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
		edit(t, fsys, test.path, flip(test.at))
	}
	span := cp.Layers[1].Tensors[1].Span(2)
	edit(t, fsys, cp.Files[span.File].Path, flip(int(span.Offset)))
	report, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: fsys, Dir: "/m", Source: &cp})
	if err != nil || report.Found != 1 || report.Damages[0].Reason != "bytes differ from the checkpoint" || report.Damages[0].ID != id {
		t.Errorf("checkpoint changed: got %+v and %v, want one finding for %v", report, err, id)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	fsys, _ := damagedStore(f)
	data, err := fsys.ReadFile(manifestPath)
	if err != nil {
		f.Fatal(err)
	}
	if resealed := layout.SealManifest(data); !bytes.Equal(resealed, data) {
		f.Fatalf("sealing a whole manifest changed it")
	}
	f.Add(data, true)
	f.Add(data, false)
	f.Add([]byte(`{"format":"outrider store","version":1}`), false)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			data = layout.SealManifest(data)
		}
		m, err := layout.DecodeManifest(data)
		var damage *layout.CorruptError
		if err != nil {
			if !errors.As(err, &damage) && !errors.Is(err, layout.ErrNotStore) && !errors.Is(err, layout.ErrVersion) {
				t.Fatalf("got %v, want one of three errors", err)
			}
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		if _, err := layout.DecodeManifest(again); err != nil {
			t.Fatalf("decode again: %v", err)
		}
	})
}

func FuzzDecodeIndex(f *testing.F) {
	fsys, _ := damagedStore(f)
	data, err := fsys.ReadFile(indexPath)
	if err != nil {
		f.Fatal(err)
	}
	raw, err := fsys.ReadFile(manifestPath)
	if err != nil {
		f.Fatal(err)
	}
	m, err := layout.DecodeManifest(raw)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, true)
	f.Add(data, false)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		m := *m
		if seal {
			data = bytes.Clone(data)
			layout.SealIndex(data, &m)
		}
		var damage *layout.CorruptError
		if err := layout.DecodeIndex(data, &m); err != nil && !errors.As(err, &damage) && !errors.Is(err, layout.ErrVersion) {
			t.Fatalf("got %v, want damage or another version", err)
		}
	})
}
