package faultfs

import (
	"errors"
	"slices"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// script is what is done before the crash.
func script(c *Crash) error {
	write := func(w layout.WriteFile, text string, off int64) error {
		_, err := w.WriteAt([]byte(text), off)
		return err
	}
	if err := c.Mkdir("/d"); err != nil { // 1
		return err
	}
	w, err := c.Create("/d/a") // 2
	if err != nil {
		return err
	}
	defer w.Close()
	return errors.Join(
		write(w, "safe", 0),      // 3
		w.Sync(),                 // 4
		c.SyncDir("/d"),          // 5
		c.SyncDir("/"),           // 6
		write(w, "lost", 4),      // 7
		c.Rename("/d/a", "/d/b"), // 8
		c.SyncDir("/d"),          // 9
		c.RemoveAll("/d/b"),      // 10
	)
}

// TestCrashKeepsWhatIsDurable: over many seeds, exactly the states are seen that a
// device may be in.
func TestCrashKeepsWhatIsDurable(t *testing.T) {
	for _, test := range []struct {
		at   int
		want []string // each a state: the one file's name and bytes, "/d" for the empty folder, or nothing
	}{
		{1, []string{""}},
		{2, []string{"", "/d"}},
		{3, []string{"", "/d", "/d/a="}},
		{5, []string{"", "/d", "/d/a=safe"}},
		{6, []string{"", "/d/a=safe"}},
		{7, []string{"/d/a=safe"}},
		{8, []string{"/d/a=safe", "/d/a=safelost"}},
		{9, []string{"/d/a=safe", "/d/a=safelost", "/d/b=safe", "/d/b=safelost"}},
		{10, []string{"/d/b=safe", "/d/b=safelost"}},
		{0, []string{"/d", "/d/b=safe", "/d/b=safelost"}},
	} {
		mem := memfs.New(memfs.Options{})
		if err := mem.WriteFile("/before", []byte("old")); err != nil {
			t.Fatal(err)
		}
		c := NewCrash(mem, test.at)
		if err := script(c); (test.at > 0) != errors.Is(err, ErrCrashed) || (test.at == 0 && err != nil) {
			t.Fatalf("crash at %d: got %v", test.at, err)
		}
		if want := (test.at + 10) % 11; c.Operations() != want {
			t.Errorf("crash at %d: got %d operations, want %d", test.at, c.Operations(), want)
		}
		if _, err := c.Stat("/before"); (test.at > 0) != errors.Is(err, ErrCrashed) {
			t.Errorf("crash at %d: got %v from what comes after", test.at, err)
		}
		var seen []string
		for seed := range uint64(60) {
			left := c.Recover(seed)
			if data, _ := left.ReadFile("/before"); string(data) != "old" {
				t.Errorf("crash at %d: got %q of what was there before", test.at, data)
			}
			if state := stateOf(left); !slices.Contains(seen, state) {
				seen = append(seen, state)
			}
		}
		slices.Sort(seen)
		if !slices.Equal(seen, test.want) {
			t.Errorf("crash at %d: got states %q, want %q", test.at, seen, test.want)
		}
	}
}

func stateOf(fsys *memfs.FS) string {
	state := ""
	for _, name := range fsys.Names() {
		if name == "/before" {
			continue
		}
		state = name
		if data, err := fsys.ReadFile(name); err == nil {
			return name + "=" + string(data)
		}
	}
	return state
}

// TestTornWrites: of a long write whole sectors are there or not.
func TestTornWrites(t *testing.T) {
	c := NewCrash(memfs.New(memfs.Options{}), 0)
	w, err := c.Create("/a")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.SyncDir("/"), w.Sync()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteAt(slices.Repeat([]byte{1}, 4*sector), 0); err != nil {
		t.Fatal(err)
	}
	torn := false
	for seed := range uint64(40) {
		data, err := c.Recover(seed).ReadFile("/a")
		if err != nil {
			t.Fatal(err)
		}
		written := 0
		for at := 0; at+sector <= len(data); at += sector {
			part := data[at : at+sector]
			if part[0] != part[sector-1] {
				t.Fatalf("seed %d: a sector is torn", seed)
			}
			written += int(part[0])
		}
		torn = torn || (written > 0 && written < 4)
	}
	if !torn {
		t.Error("no write was torn")
	}
}
