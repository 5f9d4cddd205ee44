package synthckpt

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// The grammar of families/*.txt. A line is one statement of words; '#' begins a
// comment, and everything up to the next head belongs to it:
//
//	part NAME                     statements that families share ("use NAME")
//	scheme NAME                   how a linear layer OUT x IN is stored, a line a tensor:
//	                              SUFFIX TYPE SIZE…, and OPTIONs as below
//	family NAME FORMAT MODELS…    one form of a family, as gguf or safetensors
//
// Statements:
//
//	use PART                      as if the part stood here
//	like FAMILY                   as if that family's statements stood here; later ones override
//	let VAR EXPR                  a size; H, F, E, K, N and B (hidden, experts' width, experts,
//	                              chosen, blocks, and with those that predict) are given
//	type VAR TYPE                 a name for an element type
//	prefix TEXT                   what {p} stands for
//	round VAR NUMBER              H and F are rounded up to a multiple
//	multiple VAR NUMBER           what is given must be a multiple
//	experts SCHEME                how routed linear layers are stored
//	others SCHEME                 how the other ones are
//	blocks KIND… | KIND…          kinds of the first blocks, then of all others, in turn;
//	                              a block of several kinds is written "lin+moe"
//	behind KIND                   one more block, of this kind and of kind "predict"
//	set KEY VALUE                 metadata or config.json; a key that begins with a dot stands
//	                              under the architecture's name. VALUE: "text", true, false,
//	                              null, 1.5, [EXPR EXPR…] or an expression
//	nest KEY                      keys of the settings that follow stand under this one
//	byblock KEY KIND=VALUE… else=VALUE    a list with one value for each block
//	files STEM CONFIG             names of safetensors files and of the settings beside them,
//	                              if not "model" and "config.json"
//	drop NAME                     takes a tensor of an earlier statement away
//	KIND [routed] NAME TYPE SIZE… a tensor in each block of that kind; "once" is the model,
//	                              "each" every block. {n} is the block, {e} the expert
//	KIND [routed] linear NAME OUT IN      a linear layer, stored as the scheme says
//
// Sizes stand in the order of the format: fastest first in GGUF, slowest first in
// safetensors. OPTIONs are over=EXPR (how many {e} there are, if not E),
// parts=EXPR (tensor-parallel parts, a file each) and data=RULE (see data.go).

//go:embed families/*.txt
var tables embed.FS

// errTable marks a table that breaks its own grammar: a bug of this package.
var errTable = errors.New("family table")

type statement struct {
	words []string
	place string // "gguf.txt:12"
}

func (s statement) errorf(format string, args ...any) error {
	return fmt.Errorf("synthckpt: %w: %s: %s", errTable, s.place, fmt.Sprintf(format, args...))
}

// family is one form of a family, as its table has it.
type family struct {
	Info
	body []statement
}

// library is all tables.
type library struct {
	families []family
	parts    map[string][]statement
	schemes  map[string][]statement
}

// load reads all tables; fsys is a folder of them.
func load(fsys fs.FS) (*library, error) {
	lib := &library{parts: map[string][]statement{}, schemes: map[string][]statement{}}
	names, err := fs.Glob(fsys, "families/*.txt")
	if err != nil {
		return nil, fmt.Errorf("synthckpt: %w", err)
	}
	for _, name := range names {
		file, err := fsys.Open(name)
		if err != nil {
			return nil, fmt.Errorf("synthckpt: %w", err)
		}
		err = lib.read(bufio.NewScanner(file), strings.TrimPrefix(name, "families/"))
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
	}
	return lib, nil
}

// read puts the statements of one file under their heads.
func (lib *library) read(lines *bufio.Scanner, name string) error {
	var add func(statement)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		s := statement{splitWords(text), fmt.Sprintf("%s:%d", name, n)}
		if len(s.words) == 0 {
			continue
		}
		switch head := s.words[0]; {
		case head == "family" && len(s.words) > 3:
			info := Info{Name: s.words[1], Format: s.words[2], Models: strings.Join(s.words[3:], " ")}
			if lib.find(info.Name, info.Format) != nil {
				return s.errorf("%s stands twice as %s", info.Name, info.Format)
			}
			lib.families = append(lib.families, family{Info: info})
			at := len(lib.families) - 1
			add = func(s statement) { lib.families[at].body = append(lib.families[at].body, s) }
		case (head == "part" || head == "scheme") && len(s.words) == 2:
			group, key := lib.parts, s.words[1]
			if head == "scheme" {
				group = lib.schemes
			}
			if _, twice := group[key]; twice {
				return s.errorf("%s %s stands twice", head, key)
			}
			group[key] = nil
			add = func(s statement) { group[key] = append(group[key], s) }
		case add == nil:
			return s.errorf("%q stands under no head", head)
		default:
			add(s)
		}
	}
	return lines.Err()
}

// splitWords splits at spaces, but keeps "quoted text" and [lists] whole.
func splitWords(text string) (words []string) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		end, from := strings.IndexAny(text, " \t"), 0
		if q := strings.IndexAny(text, `"[`); q >= 0 && (end < 0 || q < end) {
			closing := "]"
			if text[q] == '"' {
				closing = `"`
			}
			if i := strings.Index(text[q+1:], closing); i >= 0 {
				from = q + 1 + i
				end = strings.IndexAny(text[from:], " \t")
			}
		}
		if end < 0 {
			return append(words, text)
		}
		words, text = append(words, text[:from+end]), text[from+end:]
	}
	return words
}

// expand puts parts and other families in the place of their names.
func (lib *library) expand(body []statement, format string, deep int) ([]statement, error) {
	var out []statement
	for _, s := range body {
		var inner []statement
		switch s.words[0] {
		case "use":
			part, ok := lib.parts[strings.Join(s.words[1:], " ")]
			if !ok {
				return nil, s.errorf("there is no such part")
			}
			inner = part
		case "like":
			other := lib.find(strings.Join(s.words[1:], " "), format)
			if other == nil {
				return nil, s.errorf("there is no such family as %s", format)
			}
			inner = other.body
		default:
			out = append(out, s)
			continue
		}
		if deep > 8 {
			return nil, s.errorf("parts use each other in a circle")
		}
		inner, err := lib.expand(inner, format, deep+1)
		if err != nil {
			return nil, err
		}
		out = append(out, inner...)
	}
	return out, nil
}

func (lib *library) find(name, format string) *family {
	i := slices.IndexFunc(lib.families, func(f family) bool {
		return f.Name == name && (f.Format == format || format == "")
	})
	if i < 0 {
		return nil
	}
	return &lib.families[i]
}
