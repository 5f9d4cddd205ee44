package synthckpt_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/internal/synthckpt"
	"outrider/internal/testfiles"
	"outrider/layout"
)

var update = flag.Bool("update", false, "write the table of families in docs/checkpoints.md anew")

// The lines of docs/checkpoints.md that the table stands between.
const (
	tableBegin = "<!-- families: written by go test ./internal/synthckpt -run TestEveryFamily -update -->\n"
	tableEnd   = "<!-- end of families -->\n"
	tableHead  = "| family | format | as in | layers x experts | weights | side tensors | resident tensors | routers | store |\n|---|---|---|---|---|---|---|---|---|\n"
)

// tableRow is what the documentation says of a form of a family.
func tableRow(family synthckpt.Info, cp *layout.Checkpoint, done []string) string {
	weights, sides := tensorsOf(cp)
	cells := []string{family.Name, family.Format, family.Models, fmt.Sprintf("%d x %d", cp.Shape.Layers, cp.Shape.Experts),
		weights, sides, residents(cp), routers(cp), strings.Join(done, ", ")}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// tensorsOf tells what an expert consists of, over all layers: roles with their
// types, and endings of side tensors with theirs.
func tensorsOf(cp *layout.Checkpoint) (weights, sides string) {
	var main, side []string
	types := map[string][]string{}
	add := func(list *[]string, name, typ string) {
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
		if !slices.Contains(types[name], typ) {
			types[name] = append(types[name], typ)
		}
	}
	for _, layer := range cp.Layers {
		for i := range layer.Tensors {
			x := &layer.Tensors[i]
			role, ending, _ := strings.Cut(x.Name, ".")
			if ending != "" && !strings.HasPrefix(ending, "part") {
				add(&side, ending[strings.LastIndexByte(ending, '.')+1:], x.Type)
				continue
			}
			add(&main, role+marks(x, ending), x.Type)
		}
	}
	return withTypes(main, types), withTypes(side, types)
}

// marks says what is special about a projection.
func marks(x *layout.ExpertTensor, part string) string {
	var list []string
	if x.Fused != "" {
		list = append(list, strings.ReplaceAll(string(x.Fused), "-", " "))
	}
	if x.Transposed {
		list = append(list, "transposed")
	}
	if part != "" {
		list = append(list, "in parts")
	}
	if list == nil {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// withTypes joins names of equal types.
func withTypes(names []string, types map[string][]string) string {
	var out []string
	for i := 0; i < len(names); {
		group := []string{names[i]}
		typ := strings.Join(types[names[i]], "/")
		for i++; i < len(names) && strings.Join(types[names[i]], "/") == typ; i++ {
			group = append(group, names[i])
		}
		out = append(out, strings.Join(group, ", ")+" "+typ)
	}
	return strings.Join(out, "; ")
}

func residents(cp *layout.Checkpoint) string {
	var kept, left []string
	for _, g := range cp.Resident {
		text := fmt.Sprintf("%s %d", g.Name, g.Tensors)
		if g.LeftOut {
			left = append(left, text)
		} else {
			kept = append(kept, text)
		}
	}
	text := strings.Join(kept, ", ")
	if left != nil {
		text += "; left out: " + strings.Join(left, ", ")
	}
	return text
}

func routers(cp *layout.Checkpoint) string {
	r := cp.Routers
	if r == nil {
		return "not applied: " + cp.NoRouters
	}
	text := string(r.Scoring)
	if r.Groups > 1 {
		text += fmt.Sprintf(", %d of %d groups", r.GroupsUsed, r.Groups)
	}
	bias, selection, tables := 0, 0, 0
	for _, l := range r.Layers {
		bias += one(l.Bias)
		selection += one(l.Selection)
		tables += one(l.Hash)
	}
	if bias > 0 {
		text += ", bias"
	}
	if selection > 0 {
		text += ", selection bias"
	}
	if tables > 0 {
		text += fmt.Sprintf(", %d layers by token", tables)
	}
	return text
}

// one counts a tensor that is there.
func one(t layout.RouterTensor) int {
	if t.Type == "" {
		return 0
	}
	return 1
}

// checkTable holds the table of the documentation against the rows, or writes it.
func checkTable(t *testing.T, rows []string) {
	t.Helper()
	path := filepath.Join(testfiles.Root(t), "docs", "checkpoints.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), tableBegin)
	_, behind, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no lines %q and %q", path, tableBegin, tableEnd)
	}
	want := before + tableBegin + tableHead + strings.Join(rows, "") + tableEnd + behind
	if want == string(text) {
		return
	}
	if !*update {
		t.Errorf("%s: its table of families is not what was found: run the test with -update", path)
		return
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
