package router

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

var tiny = layout.Shape{Layers: 2, Experts: 3, TopK: 1}

// sections takes a file apart, and join puts sections together to a file whose
// sums are right.
func sections(t testing.TB, file []byte) (all [][]byte) {
	t.Helper()
	r, err := newStateReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for {
		body, err := r.section()
		if err != nil {
			t.Fatal(err)
		}
		if body == nil {
			return all
		}
		all = append(all, bytes.Clone(body))
	}
}

func join(t testing.TB, all [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := newStateWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if err := w.section(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// learnt is a file of a tiny predictor, made once.
func learnt(t testing.TB, name string) []byte {
	t.Helper()
	file := learntFiles()[name]
	if file == nil {
		t.Fatalf("there is no file of %q", name)
	}
	return bytes.Clone(file)
}

var learntFiles = sync.OnceValue(func() map[string][]byte {
	online, err := NewOnline(tiny, OnlineOptions{TokenSlots: 4, TokenWidth: 2})
	if err != nil {
		panic(err)
	}
	all := map[string]Predictor{hintedName: NewHinted(online, tiny)}
	for _, name := range Names()[1:] {
		if all[name], err = New(name, tiny); err != nil {
			panic(err)
		}
	}
	if all["online"], err = NewOnline(tiny, OnlineOptions{TokenSlots: 4, TokenWidth: 2}); err != nil {
		panic(err)
	}
	files := map[string][]byte{}
	for name, p := range all {
		run(p.NewHistory(), tiny, synthetic(tiny, 40, 2))
		var b bytes.Buffer
		if err := Save(&b, p); err != nil {
			panic(err)
		}
		files[name] = b.Bytes()
	}
	return files
})

func put32(b []byte, at int, x uint32) []byte {
	binary.LittleEndian.PutUint32(b[at:], x)
	return b
}

func TestDamagedStates(t *testing.T) {
	plain := learnt(t, "frequency")
	inside := func(name string, change func(all [][]byte) [][]byte) []byte {
		return join(t, change(sections(t, learnt(t, name))))
	}
	// The second section of frequency: revision, then for each layer a mark, the
	// passes, and three counts.
	count := func(x float32) []byte {
		return inside("frequency", func(all [][]byte) [][]byte { put32(all[1], 2+4, math.Float32bits(x)); return all })
	}
	for _, c := range []struct {
		name string
		file []byte
		want string // in the text of a *CorruptError
	}{
		{"cut in the version", plain[:10], "it ends after 10 bytes"},
		{"cut in a head", plain[:15], "it ends after 15 bytes"},
		{"cut in a section", plain[:27], "it ends after 27 bytes"},
		{"no end mark", plain[:len(plain)-20], "it ends after"},
		{"cut in the end mark", plain[:len(plain)-1], "it ends after"},
		{"goes on", append(bytes.Clone(plain), 0), "something follows the end mark"},
		{"a bit", func() []byte { b := bytes.Clone(plain); b[30] ^= 4; return b }(), "checksum is"},
		{"a length of nothing", put32(bytes.Clone(plain), 12, 0), "a section has 0 bytes for"},
		{"longer than it unpacks to", put32(bytes.Clone(plain), 12, 1<<31), "a section has 2147483648 bytes"},
		{"shorter than can be", put32(bytes.Clone(plain), 16, 1<<31), "for 2147483648"},
		{"end mark of elsewhere", func() []byte {
			w, _ := newStateWriter(&bytes.Buffer{})
			w.pack = make([]byte, stateHeadBytes+8)
			w.seal(0, 0)
			return append(bytes.Clone(plain[:12]), w.pack...)
		}(), "the end mark counts 0 bytes"},
		{"does not unpack", func() []byte {
			var b bytes.Buffer
			w, _ := newStateWriter(&b)
			w.pack = append(make([]byte, stateHeadBytes), "no zstd"...)
			w.seal(7, 8)
			_ = w.put(w.pack)
			return b.Bytes()
		}(), "does not unpack"},
		{"unpacks to less", func() []byte {
			var b bytes.Buffer
			w, _ := newStateWriter(&b)
			w.pack = w.zip.EncodeAll(make([]byte, 100), make([]byte, stateHeadBytes))
			w.seal(len(w.pack)-stateHeadBytes, 101)
			_ = w.put(w.pack)
			return b.Bytes()
		}(), "unpacks to 100 bytes, want 101"},
		{"unpacks to more", func() []byte {
			var b bytes.Buffer
			w, _ := newStateWriter(&b)
			w.pack = w.zip.EncodeAll(make([]byte, 100), make([]byte, stateHeadBytes))
			w.seal(len(w.pack)-stateHeadBytes, 99)
			_ = w.put(w.pack)
			return b.Bytes()
		}(), "does not unpack"},
		{"head alone", inside("frequency", func(all [][]byte) [][]byte { return all[:1] }), "(counts): the end mark stands in its place"},
		{"a layer too few", inside("transition", func(all [][]byte) [][]byte { return all[:2] }), "(layer 1): the end mark stands in its place"},
		{"a layer too many", inside("transition", func(all [][]byte) [][]byte { return append(all, all[2]) }), "a section too many"},
		{"head too short", inside("frequency", func(all [][]byte) [][]byte { all[0] = all[0][:4]; return all }), "(head): "},
		{"head too long", inside("frequency", func(all [][]byte) [][]byte { all[0] = append(all[0], 0); return all }), "(head): 1 bytes too many"},
		{"no such shape", inside("frequency", func(all [][]byte) [][]byte { all[0][len(all[0])-1] = 8; return all }), "top-k 4"},
		{"no layers", inside("frequency", func(all [][]byte) [][]byte { all[0][len(all[0])-3] = 0; return all }), "a number is 0, want 1 to"},
		{"shape of more", inside("frequency", func(all [][]byte) [][]byte { all[0][len(all[0])-2] = 2 * 60; return all }), "want 240"},
		{"a count of NaN", count(float32(math.NaN())), "number 0 is NaN"},
		{"an infinite count", count(float32(math.Inf(1))), "number 0 is +Inf"},
		{"a negative count", count(-1), "number 0 is -1"},
		{"a count above all", count(1e20), "number 0 is 1e+20"},
		{"a use more than passes", inside("frequency", func(all [][]byte) [][]byte {
			put32(all[1], 2+4, math.Float32bits(41))
			return all
		}), "number 0 is 41, want 0 to"},
		{"a mark that is none", inside("frequency", func(all [][]byte) [][]byte { all[1][1] = 4; return all }), "a number is 2, want 0 to 1"},
		{"a number without end", inside("frequency", func(all [][]byte) [][]byte {
			all[1] = bytes.Repeat([]byte{0xff}, 12)
			return all
		}), "cut off or too large"},
		{"options that are none", inside("online", func(all [][]byte) [][]byte { all[1][0] = 0; return all }), "want 1 to"},
		{"options that do not fit", inside("online", func(all [][]byte) [][]byte { all[1][0]++; return all }), ""},
		{"options for gigabytes", inside("online", func(all [][]byte) [][]byte {
			all[1] = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(nil, maxTokenSlots), maxTokenWidth), 1)
			return all
		}), "token tables of 1048576 × 1024 entries"},
		{"a collection without end", inside("matrix", func(all [][]byte) [][]byte {
			all[1] = binary.AppendVarint(binary.AppendVarint(nil, 1<<25), 1)
			return all
		}), "a number is 33554432, want 1 to"},
		{"a hint within a hint", inside("hinted", func(all [][]byte) [][]byte {
			all[1] = binary.AppendVarint(nil, int64(len(hintedName)))
			all[1] = append(all[1], hintedName...)
			return all
		}), "wraps another of its kind"},
		{"matrix of no version", inside("matrix", func(all [][]byte) [][]byte {
			clear(all[2][len(all[2])-8:])
			return all
		}), "number"},
		{"matrix of nobody", inside("matrix", func(all [][]byte) [][]byte {
			copy(all[2][3:], bytes.Repeat([]byte{0}, 8))
			return all
		}), "number"},
		{"an expert that is none", inside("transition-history", func(all [][]byte) [][]byte {
			all[2][5] = 3
			return all
		}), "chose expert 3 of 3"},
		{"a latest token that is not", inside("transition-history", func(all [][]byte) [][]byte { all[2][3] -= 2; return all }), "is the latest of"},
		{"a set that is none", inside("transition-history", func(all [][]byte) [][]byte {
			all[2][bytes.LastIndexByte(all[2], 0x3a)] = 0
			return all
		}), "of expert"},
		{"a set of later tokens", inside("transition-history", func(all [][]byte) [][]byte {
			all[2][len(all[2])-1] = 0x0f
			return all
		}), "not one of"},
		{"a share above one", inside("matrix", func(all [][]byte) [][]byte { put32(all[3], 0, math.Float32bits(2)); return all }), "number 0 is 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Load(bytes.NewReader(c.file))
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a *CorruptError with %q", err, c.want)
			}
			if err != nil && p != nil {
				t.Errorf("got a predictor beside the error %v", err)
			}
		})
	}
}

func TestStatesOfOthers(t *testing.T) {
	plain := learnt(t, "frequency")
	for _, c := range []struct {
		name string
		file []byte
		want error
	}{
		{"nothing", nil, ErrNotState},
		{"less than the magic", plain[:7], ErrNotState},
		{"text", []byte("Dear Sir, this is no forecast.\n"), ErrNotState},
		{"next version", put32(bytes.Clone(plain), 8, stateVersion+1), ErrStateVersion},
		{"version 0", put32(bytes.Clone(plain), 8, 0), ErrStateVersion},
		{"next revision of the predictor", func() []byte {
			all := sections(t, plain)
			all[1][0] = 2 * 2
			return join(t, all)
		}(), ErrStateVersion},
		{"no predictor of ours", func() []byte {
			all := sections(t, plain)
			all[0] = bytes.Replace(all[0], []byte("frequency"), []byte("freqvency"), 1)
			return join(t, all)
		}(), ErrUnknownPredictor},
	} {
		if _, err := Load(bytes.NewReader(c.file)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// TestHostileStatesTakeNoMemory: a short file is not believed what it says of the
// size of things.
func TestHostileStatesTakeNoMemory(t *testing.T) {
	head := func(name string, layers, experts, topK int) []byte {
		b := binary.AppendVarint(nil, int64(len(name)))
		b = append(b, name...)
		for _, x := range []int{layers, experts, topK} {
			b = binary.AppendVarint(b, int64(x))
		}
		return b
	}
	options := func(values ...int64) (b []byte) {
		for _, v := range values {
			b = binary.AppendVarint(b, v)
		}
		return b
	}
	seen := []byte{2, 2, 0, 0, 0, 0, 0, 0} // revision 1, there, and a little
	long := slices.Concat(put32(put32([]byte(stateMagic+"1234"), 8, stateVersion), 8, stateVersion), put32(put32(make([]byte, 12), 0, 1<<31-1), 4, 1<<31-1))
	for name, file := range map[string][]byte{
		"frequency":  join(t, [][]byte{head("frequency", 256, 65536, 1), seen}),
		"recency":    join(t, [][]byte{head("recency", 256, 65536, 1), seen}),
		"transition": join(t, [][]byte{head("transition", 1, 5792, 5792), seen}),
		"online":     join(t, [][]byte{head("online", 1, 5792, 5792), options(1<<20, 1<<10, 1<<30), seen}),
		"tables":     join(t, [][]byte{head("online", 1, 1, 1), options(1<<20, 1<<10, 1), {2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0}}),
		"matrix":     join(t, [][]byte{head("matrix", 4096, 4096, 1), options(2, 1), seen}),
		"long":       long,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Load(bytes.NewReader(file))
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
			t.Errorf("%s: loading %d bytes (%v) allocated %d bytes", name, len(file), err, got)
		}
	}
}

// FuzzLoad: what loads forecasts probabilities whatever comes, and is saved as
// it was. Most inputs take the place of one section in the file of a predictor, so
// that sums are right.
func FuzzLoad(f *testing.F) {
	names := slices.Sorted(maps.Keys(learntFiles()))
	files := map[string][][]byte{}
	for k, name := range names {
		files[name] = sections(f, learnt(f, name))
		f.Add(learnt(f, name), uint8(255), uint8(k))
		for i, s := range files[name] {
			f.Add(s, uint8(i), uint8(k))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, place, name uint8) {
		all := slices.Clone(files[names[int(name)%len(names)]])
		if int(place) >= len(all) || len(data) == 0 {
			loadHostile(t, data)
			return
		}
		all[place] = data
		loadHostile(t, join(t, all))
	})
}

func loadHostile(t *testing.T, file []byte) {
	q, err := Load(bytes.NewReader(file))
	if err != nil {
		if q != nil {
			t.Fatalf("got a predictor beside the error %v", err)
		}
		return
	}
	shape := q.(Saver).Shape()
	if shape.Count() > 1<<10 {
		return // takes long to play
	}
	again := save(t, q)
	if !bytes.Equal(save(t, loaded(t, again)), again) {
		t.Fatal("saved, loaded and saved again: got another file, want the same")
	}
	h, dst := q.NewHistory(), make([]float32, shape.Experts)
	for _, x := range synthetic(shape, 4, 1) {
		h.Begin(trace.Decode, x.tokens)
		for l := range shape.Layers {
			h.Score(l, dst)
			for e, p := range dst {
				if !(p >= 0 && p <= 1.01) {
					t.Fatalf("%s, layer %d: expert %d scores %v, want a probability", stateName(q), l, e, p)
				}
			}
			h.Observe(l, x.layer(l))
		}
	}
}
