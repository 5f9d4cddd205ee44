package overlap

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"outrider/layout"
)

var shape = layout.Shape{Layers: 2, Experts: 6, TopK: 2}

const (
	small = 3 * pageBytes
	large = 2*hugeBytes + 5*pageBytes
)

// newMemory has small experts in layer 0 and large ones in layer 1.
func newMemory(t *testing.T) *Memory {
	t.Helper()
	m, err := New(shape, []int64{small, large})
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return m
}

func expert(layer, index int) layout.ExpertID {
	return layout.ExpertID{Layer: int32(layer), Index: int32(index)}
}

// fillByte is what an expert's bytes are in these tests.
func fillByte(id layout.ExpertID) byte { return byte(1 + int(id.Layer)*100 + int(id.Index)) }

// take lends a slot and fills it as a read does.
func take(t *testing.T, m *Memory, id layout.ExpertID) []byte {
	t.Helper()
	b, err := m.Take(id, m.layers[id.Layer].bytes)
	if err != nil {
		t.Fatal(err)
	}
	fill(b, fillByte(id))
	return b
}

func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with
	}
}

func publish(t *testing.T, m *Memory, b []byte) {
	t.Helper()
	if err := m.Publish(b[len(b)/2:][:1]); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, m *Memory) {
	t.Helper()
	if err := m.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// compare is memcmp of libc: as llama.cpp's threads do, it touches memory outside of Go,
// where waiting for a page holds up nobody else.
var compare = sync.OnceValues(func() (func(a, b *byte, n uintptr) int32, error) {
	lib, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	var f func(a, b *byte, n uintptr) int32
	purego.RegisterLibFunc(&f, lib, "memcmp")
	return f, nil
})

// reader compares on a thread of its own; the channel gets whether all is as wanted.
func reader(t *testing.T, b []byte, want byte) <-chan bool {
	t.Helper()
	memcmp, err := compare()
	if err != nil {
		t.Skip(err)
	}
	expected := bytes.Repeat([]byte{want}, len(b))
	equal := make(chan bool, 1)
	go func() {
		equal <- memcmp(unsafe.SliceData(b), unsafe.SliceData(expected), uintptr(len(b))) == 0
	}()
	return equal
}

// holds reports whether memory that is there, is all of one byte.
func holds(t *testing.T, b []byte, want byte) bool { return <-reader(t, b, want) }

// committed is how many bytes of a range are memory.
func committed(t *testing.T, b []byte) int64 {
	t.Helper()
	pages := make([]byte, len(b)/pageBytes)
	if _, _, no := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(unsafe.Pointer(unsafe.SliceData(pages)))); no != 0 {
		t.Fatal(no)
	}
	var n int64
	for _, p := range pages {
		n += int64(p & 1)
	}
	return n * pageBytes
}

// allCommitted is that of all slots and stacks.
func allCommitted(t *testing.T, m *Memory) (n int64) {
	t.Helper()
	for _, s := range m.segments {
		n += committed(t, s)
	}
	for _, c := range m.classes {
		for _, r := range c.runs {
			n += committed(t, r.segment)
		}
	}
	return n
}
