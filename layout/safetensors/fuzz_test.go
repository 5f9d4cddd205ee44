package safetensors_test

import (
	"errors"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/safetensors"
)

// FuzzOpen: no file may make the reader panic, hang or keep a file open, and
// whatever it accepts must be consistent.
func FuzzOpen(f *testing.F) {
	f.Add(oneFile(header, 22).Files["m.safetensors"])
	f.Add(oneFile(`{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}`, 2).Files["m.safetensors"])
	f.Add(oneFile(`{}`, 0).Files["m.safetensors"])
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := &memfs.ReadOnly{Files: map[string][]byte{"m.safetensors": data}}
		file, err := safetensors.Open(fsys, "m.safetensors")
		if err != nil {
			var fe *safetensors.FormatError
			if !errors.As(err, &fe) {
				t.Fatalf("got %v, want a FormatError", err)
			}
		} else {
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
