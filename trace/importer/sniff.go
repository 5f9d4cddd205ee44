package importer

import (
	"bytes"
	"encoding/json"
)

// keys are those of the top level of the first JSON object, as far as the head
// goes; nil if the content begins with none.
func (p *peek) keys() map[string]bool {
	text := bytes.TrimPrefix(p.head, []byte("\xef\xbb\xbf"))
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	keys := map[string]bool{}
	for depth, isKey := 1, true; depth > 0; {
		t, err := dec.Token()
		if err != nil {
			break
		}
		switch d, _ := t.(json.Delim); {
		case d == '{' || d == '[':
			depth++
			continue
		case d == '}' || d == ']':
			depth--
			if depth == 1 {
				isKey = true
			}
			continue
		case depth > 1:
			continue
		}
		if isKey {
			keys[t.(string)] = true
		}
		isKey = !isKey
	}
	return keys
}

// has reports whether all of the keys are there.
func has(keys map[string]bool, want ...string) bool {
	for _, k := range want {
		if !keys[k] {
			return false
		}
	}
	return true
}
