package drive

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/layout"
)

// sound is a profile as a probe of a folder gives it.
func sound() Profile {
	return Profile{
		Format: profileFormat, Version: profileVersion, Path: "/mnt/fast", Kind: KindFolder, FileBytes: 1 << 30, Seconds: 12.5,
		Direct: true, Engine: layout.EnginePread, BlockBytes: 1 << 20, Depth: 4, BytesPerSecond: 3.1e9, LatencySeconds: 8.1e-5,
		Notes:  []string{"a note"},
		Device: Device{FileSystem: "xfs", Number: "259:0", Name: "nvme0n1", Model: "Fast 1", LogicalBlockBytes: 512, MaxRequestBytes: 1 << 20, Link: "PCIe 16.0 GT/s x4", LinkBytesPerSecond: 7.88e9},
		Cells: []Cell{
			{BlockBytes: 1 << 20, Depth: 2, BytesPerSecond: 2e9, P50Micros: 100, P99Micros: 200, CPUSecondsPerGiB: 0.1, Rounds: 3, Spread: 1.1},
			{BlockBytes: 1 << 20, Depth: 4, BytesPerSecond: 3.1e9, P50Micros: 150, P99Micros: 250, Rounds: 3, Spread: 1.25},
		},
	}
}

// soundStore is one of a store of two lanes.
func soundStore() Profile {
	lane := sound()
	lane.Kind = KindLane
	return Profile{
		Format: profileFormat, Version: profileVersion, Path: "/store", Kind: KindStore, FileBytes: 2 << 30, Engine: "mixed",
		BlockBytes: 1 << 20, Depth: 4, BytesPerSecond: 6.2e9, Lanes: []Profile{lane, lane},
	}
}

func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "drive.json")
	for _, want := range []Profile{sound(), soundStore()} {
		if err := want.Save(path); err != nil { // the second replaces the first
			t.Fatal(err)
		}
		got, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("want -, got +:\n%s", diff)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want the profile alone", entries, err)
	}
}

func TestSaveRefusesWhatLoadWouldRefuse(t *testing.T) {
	dir := t.TempDir()
	if err := new(Profile).Save(filepath.Join(dir, "p")); err == nil || !strings.Contains(err.Error(), "not one of a probe") {
		t.Errorf("an empty profile: got %v, want an error", err)
	}
	p := sound()
	if err := p.Save(filepath.Join(dir, "missing", "p")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: got %v, want %v", err, fs.ErrNotExist)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := p.Save(filepath.Join(dir, "folder")); err == nil {
		t.Error("onto a folder: got nil, want an error")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want nothing left", entries, err)
	}
}

func TestLoadRefusesStrangers(t *testing.T) {
	text, err := json.Marshal(sound())
	if err != nil {
		t.Fatal(err)
	}
	swap := func(old, new string) string {
		if !strings.Contains(string(text), old) {
			t.Fatalf("the profile has no %s", old)
		}
		return strings.Replace(string(text), old, new, 1)
	}
	corrupt := new(layout.CorruptError)
	for _, tt := range []struct {
		name string
		text string
		want error // corrupt: any *layout.CorruptError
		word string
	}{
		{"empty", "", ErrNotProfile, "make one with outrider probe"},
		{"no JSON", "Dear Sir", ErrNotProfile, ""},
		{"other JSON", `{"a":1}`, ErrNotProfile, ""},
		{"a list", `[1]`, ErrNotProfile, ""},
		{"cut", string(text[:len(text)-1]), ErrNotProfile, ""},
		{"more behind it", string(text) + "{}", ErrNotProfile, ""},
		{"huge", strings.Repeat(" ", maxProfileBytes) + string(text), ErrNotProfile, "want at most 4194304"},
		{"other format", swap(profileFormat, "outrider forecast"), ErrNotProfile, ""},
		{"next version", swap(`"version":1`, `"version":2`), ErrVersion, "version 2, this program reads 1"},
		{"no version", swap(`"version":1,`, ``), ErrVersion, "version 0"},
		{"unknown field", swap(`"path"`, `"road":1,"path"`), corrupt, `unknown field "road"`},
		{"wrong type", swap(`"depth":4`, `"depth":"4"`), corrupt, "cannot unmarshal string"},
		{"kind", swap(`"kind":"folder"`, `"kind":"cloud"`), corrupt, `kind is "cloud"`},
		{"no bytes", swap(`"file_bytes":1073741824`, `"file_bytes":0`), corrupt, "file_bytes is 0"},
		{"seconds", swap(`"seconds":12.5`, `"seconds":-1`), corrupt, "seconds is -1"},
		{"latency", swap(`"latency_seconds":0.000081`, `"latency_seconds":1e99`), corrupt, "latency_seconds is 1e+99"},
		{"block of nothing", swap(`"block_bytes":1048576`, `"block_bytes":0`), corrupt, "block_bytes is 0"},
		{"odd block", swap(`"block_bytes":1048576`, `"block_bytes":1048577`), corrupt, "block_bytes is 1048577"},
		{"huge block", swap(`"block_bytes":1048576`, `"block_bytes":1099511627776`), corrupt, "block_bytes is 1099511627776"},
		{"no depth", swap(`"depth":4`, `"depth":0`), corrupt, "depth is 0"},
		{"huge depth", swap(`"depth":4`, `"depth":1000000`), corrupt, "depth is 1000000"},
		{"advice that is no cell", swap(`"depth":4`, `"depth":8`), corrupt, "which is no cell of it"},
		{"no rate", swap(`"bytes_per_second":3100000000`, `"bytes_per_second":0`), corrupt, "bytes_per_second is 0"},
		{"huge rate", swap(`"bytes_per_second":3100000000`, `"bytes_per_second":1e300`), corrupt, "bytes_per_second is 1e+300"},
		{"rate beyond numbers", swap(`"bytes_per_second":3100000000`, `"bytes_per_second":1e999`), corrupt, "1e999"},
		{"cell without rounds", swap(`"rounds":3`, `"rounds":0`), corrupt, "cell 0: 0 rounds"},
		{"cell without rate", swap(`"bytes_per_second":2000000000`, `"bytes_per_second":-5`), corrupt, "cell 0: bytes_per_second is -5"},
		{"spread", swap(`"spread":1.1`, `"spread":0.5`), corrupt, "spread 0.5"},
		{"quantiles", swap(`"p99_us":200`, `"p99_us":20`), corrupt, "100 and 20 µs"},
		{"no cells", strings.Split(string(text), `,"cells"`)[0] + "}", corrupt, "neither cells nor lanes"},
		{"long text", swap("a note", strings.Repeat("x", maxText+1)), corrupt, "a text has 4097 bytes"},
		{"long warning", swap(`"notes"`, `"warning":"`+strings.Repeat("x", maxText+1)+`","notes"`), corrupt, "the warning has 4097 bytes"},
		{"device", swap(`"logical_block_bytes":512`, `"logical_block_bytes":-512`), corrupt, "blocks of -512 bytes"},
		{"many notes", swap(`"a note"`, `""`+strings.Repeat(`,""`, maxNotes)), corrupt, "1025 notes"},
		{"lanes in a folder", swap(`"cells"`, `"lanes":[{}],"cells"`), corrupt, `a "folder" of 1 lanes`},
	} {
		path := filepath.Join(t.TempDir(), "p.json")
		if err := os.WriteFile(path, []byte(tt.text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		fits := errors.Is(err, tt.want)
		if tt.want == error(corrupt) {
			fits = errors.As(err, new(*layout.CorruptError))
		}
		if !fits || !strings.Contains(err.Error(), tt.word) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %T %v that names the file and says %q", tt.name, err, tt.want, tt.want, tt.word)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestLoadRefusesStoresThatAreNone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Profile)
		word   string
	}{
		{"cells of its own", func(p *Profile) { p.Cells = sound().Cells }, "no cells of its own"},
		{"many lanes", func(p *Profile) { p.Lanes = make([]Profile, layout.MaxLanes+1) }, "65 lanes"},
		{"a folder for a lane", func(p *Profile) { p.Lanes[1].Kind = KindFolder }, `lane 1 is a "folder"`},
		{"lanes in a lane", func(p *Profile) { p.Lanes[1] = soundStore() }, "lane 1 is a"},
		{"a lane without cells", func(p *Profile) { p.Lanes[0].Cells = nil }, "0 cells, want a lane with cells"},
		{"a bad lane", func(p *Profile) { p.Lanes[1].Depth = 0 }, "lane 1: depth is 0"},
		{"a lane of another version", func(p *Profile) { p.Lanes[1].Version = 7 }, "lane 1: it is"},
	} {
		p := soundStore()
		tt.change(&p)
		if err := p.check(); err == nil || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: got %v, want an error that says %q", tt.name, err, tt.word)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, p := range []Profile{sound(), soundStore()} {
		text, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"format":"outrider drive profile","version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decode("p.json", data)
		if err != nil {
			var damaged *layout.CorruptError
			if !errors.Is(err, ErrNotProfile) && !errors.Is(err, ErrVersion) && !errors.As(err, &damaged) {
				t.Errorf("got %v, want one of the three kinds", err)
			}
			return
		}
		// What is accepted can be saved, and is the same when it is loaded again.
		path := filepath.Join(t.TempDir(), "p.json")
		if err := p.Save(path); err != nil {
			t.Fatal(err)
		}
		again, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(p)
		b, _ := json.Marshal(again)
		if string(a) != string(b) {
			t.Errorf("got %s after loading again, want %s", b, a)
		}
	})
}
