package safetensors_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/safetensors"
)

// FuzzOpen: no file may make the reader panic, hang or keep a file open, and
// whatever it accepts must be consistent, and JSON that others accept too.
func FuzzOpen(f *testing.F) {
	f.Add(oneFile(header, 22).Files["m.safetensors"])
	f.Add(oneFile(`{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}`, 2).Files["m.safetensors"])
	f.Add(oneFile(`{}`, 0).Files["m.safetensors"])
	f.Add(oneFile(`{"\u00e9\n":{"x":[null,{"y":1e3}],"dtype":"U8","shape":[ 2 , 1 ],"data_offsets":[0,2]} }`+" \n", 2).Files["m.safetensors"])
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := &memfs.ReadOnly{Files: map[string][]byte{"m.safetensors": data}}
		file, err := safetensors.Open(fsys, "m.safetensors")
		if err != nil {
			var fe *safetensors.FormatError
			if !errors.As(err, &fe) {
				t.Fatalf("got %v, want a FormatError", err)
			}
		} else {
			if head := data[8:][:binary.LittleEndian.Uint64(data)]; !json.Valid(head) {
				t.Fatalf("accepted %q, which is no JSON", head)
			}
			total := int64(0)
			for _, ts := range file.Tensors() {
				if err := file.ReadTensor(ts, make([]byte, ts.Bytes)); err != nil {
					t.Fatal(err)
				}
				total += ts.Bytes
			}
			if total > int64(len(data)) {
				t.Fatalf("tensors have %d bytes, the file %d", total, len(data))
			}
		}
		if n := fsys.Opens.Load(); n != 0 {
			t.Fatalf("%d files are still open, want 0", n)
		}
	})
}

// FuzzIndex: an index beside two good shards is refused, or tells the truth.
func FuzzIndex(f *testing.F) {
	plain := plainSet(f)
	f.Add(plain[mainName])
	f.Add([]byte(`{"metadata":{"total_size":12},"weight_map":{"a":"` + one + `","\u0062":"` + one + `","c":"` + two + `"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../` + one + `"}}`))
	f.Add([]byte(`{"metadata":{"total_size":"x"},"x":[1,{}],"weight_map":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := safetensors.OpenSet(folder(t, with(plain, map[string][]byte{mainName: data})), "/m")
		checkSet(t, s, err)
		if err == nil && text(s) != one+": a b; "+two+": c" && text(s) != "" {
			t.Fatalf("got %s of an index %q", text(s), data)
		}
		if err == nil && !json.Valid(data) {
			t.Fatalf("accepted %q, which is no JSON", data)
		}
	})
}

// checkSet: an error is a FormatError, and a set consists of what its files hold.
func checkSet(t *testing.T, s *safetensors.Set, err error) {
	t.Helper()
	var fe *safetensors.FormatError
	if err != nil {
		if !errors.As(err, &fe) {
			t.Fatalf("got %v, want a FormatError", err)
		}
		return
	}
	shards := s.Shards()
	type place struct {
		name string
		part int
	}
	seen := map[place]bool{}
	for _, ts := range s.Tensors() {
		if ts.Shard < 0 || ts.Shard >= len(shards) || ts.Offset < 8 || ts.Offset+ts.Bytes > shards[ts.Shard].Size {
			t.Fatalf("%+v lies outside its file", ts)
		}
		if seen[place{ts.Name, ts.Part}] {
			t.Fatalf("%q is there twice as part %d", ts.Name, ts.Part)
		}
		seen[place{ts.Name, ts.Part}] = true
	}
}

// FuzzSet: two files and an index of any content, the files named as shards, as
// loose files or as tensor-parallel parts.
func FuzzSet(f *testing.F) {
	plain := plainSet(f)
	f.Add(plain[one], plain[two], plain[mainName], uint8(0))
	f.Add(plain[one], plain[two], []byte(nil), uint8(0))
	f.Add(plain[one], plain[two], []byte(nil), uint8(1))
	f.Add(plain[one], plain[one], []byte(nil), uint8(2))
	f.Add(plain[two], plain[two], []byte(nil), uint8(1))
	f.Fuzz(func(t *testing.T, a, b, index []byte, names uint8) {
		pair := [][2]string{{one, two}, {"x.safetensors", "y.safetensors"}, {"x-TP-000.safetensors", "x-TP-001.safetensors"}, {"x-TP-common.safetensors", "x-TP-000.safetensors"}}[names%4]
		files := map[string][]byte{pair[0]: a, pair[1]: b}
		if index != nil {
			files[mainName] = index
		}
		fsys := folder(t, files)
		s, err := safetensors.OpenSet(fsys, "/m")
		checkSet(t, s, err)
		s, err = safetensors.OpenSet(fsys, "/m/"+pair[1])
		checkSet(t, s, err)
	})
}
