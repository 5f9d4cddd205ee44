package importer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"outrider/trace"
)

func TestIDRows(t *testing.T) {
	for text, want := range map[string]idRows{
		"[]":                     {},
		" [ [ 3 , 1 ],\n[0,2] ]": {ids: []int32{3, 1, 0, 2}, rows: 2, width: 2},
		"[[-7]]":                 {ids: []int32{-7}, rows: 1, width: 1},
		"[[],[]]":                {rows: 2},
	} {
		got := idRows{ids: []int32{9}, rows: 4, width: 4} // of the value before
		if err := json.Unmarshal([]byte(text), &got); err != nil || !slices.Equal(got.ids, want.ids) || got.rows != want.rows || got.width != want.width {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"null":            "want an array of rows",
		"7":               "want an array of rows",
		"[7]":             "want an array of rows",
		`{"a":[[1]]}`:     "want an array of rows",
		"[[1],[1,2]]":     "ragged: row 1 has 2 ids, but the rows before have 1",
		"[[1,2],[]]":      "ragged: row 1 has 0 ids",
		"[[[1]]]":         "row 0 holds an array",
		`[["1"]]`:         "is no expert id",
		"[[1.5]]":         `"1.5" is no expert id`,
		"[[99999999999]]": "is no expert id",
		"[[{}]]":          "is no expert id",
	} {
		var rows *rowsError
		if err := json.Unmarshal([]byte(text), &idRows{}); !errors.As(err, &rows) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", text, err, want)
		}
	}
}

func FuzzIDRows(f *testing.F) {
	for _, text := range []string{"[[3,1],[0,2]]", "[]", "[[]]", "[[1],[1,2]]", `[["a]"]]`, "null"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got idRows
		if json.Unmarshal(text, &got) != nil {
			return
		}
		var want [][]int32
		if err := json.Unmarshal(text, &want); err != nil || len(want) != got.rows {
			t.Fatalf("%q: got %d rows, encoding/json %d, %v", text, got.rows, len(want), err)
		}
		for i, row := range want {
			if !slices.Equal(row, got.row(i)) {
				t.Fatalf("%q: row %d: got %v, want %v", text, i, got.row(i), row)
			}
		}
	})
}

// packed is text, so many more times again, in gzip.
func packed(t *testing.T, text, again string, times int) string {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	for range times + 1 {
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		text = again
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A value that never ends is given up at the limit, not held.
func TestJSONStreamLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("unpacks several times 64 MiB")
	}
	const chunk = 1 << 16
	for _, c := range []struct{ form, begin, again, want string }{
		{"gpt-oss-fingerprint", `{"router_data":[{"token_1":{"layer_0":{"selected_experts":[1`, ",1", "a value is longer than"},
		{"vllm-moe-trace", `{"records":[`, "  ", "a value is longer than"},
		{"vllm-moe-trace", `{"records"`, "  ", "a value is longer than"},
		{"vllm-moe-trace", `{"records":`, "  ", "a value is longer than"},
		{"vllm-moe-trace", `{"records":[], `, "  ", "a value is longer than"},
		{"moe-beyond", beyondText + `3,0,"`, "xx", "is a quote left open?"},
	} {
		text := packed(t, c.begin, strings.Repeat(c.again, chunk/2), maxLine/chunk+2)
		_, err := Open(written(t, named{"p.gz", text}), Options{From: c.form, Experts: 8})
		var corrupt *trace.CorruptError
		if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %.20q: got error %v, want one with %q", c.form, c.begin, err, c.want)
		}
	}
}

// Of a compressed file that was cut the whole tokens are told, then the cut.
func TestCutCompressed(t *testing.T) {
	specs := specText([2]int{40, 40}, [2]int{40, 40}, [2]int{40, 40})
	prints := strings.Repeat(printLine+"\n", 300)
	for form, text := range map[string]string{"speculative-moe": specs, "gpt-oss-fingerprint": prints, "moe-beyond": collectedText + strings.Repeat("x,1,0,1 2\n", 3000)} {
		whole := packed(t, text, "", 0)
		path := written(t, named{"p.gz", whole[:len(whole)-12]})[0]
		imp, err := Open([]string{path}, Options{Experts: 8})
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		tokens, err := readOut(imp)
		if len(tokens) == 0 || err == nil || !(strings.Contains(err.Error(), "cut off") || strings.Contains(err.Error(), "the file ends inside")) {
			t.Errorf("%s: got %d tokens, error %v; want tokens and a cut", form, len(tokens), err)
		}
		if imp.Close() != nil || imp.Form.Name != form {
			t.Errorf("got form %s, want %s", imp.Form.Name, form)
		}
	}
}
