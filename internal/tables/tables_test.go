package tables_test

import (
	"strings"
	"testing"

	"outrider/internal/tables"
)

func TestGrid(t *testing.T) {
	g := tables.NewGrid("name", "Count", "note")
	g.Add("a", "5", "x")
	g.Add("long name", "12,345", "")
	var out strings.Builder
	g.Print(&out)
	want := "" +
		"name        Count  note\n" +
		"─────────────────────────\n" +
		"a               5  x\n" +
		"long name  12,345\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestFields(t *testing.T) {
	var f tables.Fields
	f.Add("model", "%s of %d", "tiny", 8)
	f.Add("a long name", "")
	f.Add("direct", "%t", true)
	var out strings.Builder
	f.Print(&out)
	if want := "model   tiny of 8\ndirect  true\n"; out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}
