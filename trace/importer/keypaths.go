package importer

import (
	"bytes"
	"encoding/json"
)

// hasPath reports whether the head's first JSON object has a key at this path, as
// far as the head goes. A step is a key, "*" for any key, or "[]" for the
// elements of a list: "layers", "[]", "heat".
func (p *peek) hasPath(want ...string) bool {
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(p.head, []byte("\xef\xbb\xbf"))))
	var path []string
	for isKey := false; ; {
		t, err := dec.Token()
		if err != nil || (len(path) == 0 && t != json.Delim('{')) {
			return false
		}
		switch t {
		case json.Delim('{'):
			path, isKey = append(path, ""), true
			continue
		case json.Delim('['):
			path, isKey = append(path, listStep), false
			continue
		case json.Delim('}'), json.Delim(']'):
			if path = path[:len(path)-1]; len(path) == 0 {
				return false
			}
		default:
			if key, ok := t.(string); ok && isKey {
				path[len(path)-1], isKey = key, false
				if samePath(path, want) {
					return true
				}
				continue
			}
		}
		// A value ended: in an object a key comes next.
		isKey = path[len(path)-1] != listStep
	}
}

const listStep = "[]"

func samePath(path, want []string) bool {
	if len(path) != len(want) {
		return false
	}
	for i, step := range want {
		if step != path[i] && (step != "*" || path[i] == listStep) {
			return false
		}
	}
	return true
}
