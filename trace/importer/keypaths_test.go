package importer

import "testing"

func TestHasPath(t *testing.T) {
	const text = `{"a":{"b":[1,{"c":2,"d":"e"},[{"f":{}}]],"g":"h"},"layers":[{"id":1},{"heat":[`
	for _, c := range []struct {
		want []string
		has  bool
	}{
		{[]string{"a"}, true},
		{[]string{"layers"}, true},
		{[]string{"a", "b"}, true},
		{[]string{"*", "g"}, true},
		{[]string{"a", "b", "[]", "d"}, true},
		{[]string{"a", "*", "[]", "c"}, true},
		{[]string{"a", "b", "[]", "[]", "f"}, true},
		{[]string{"layers", "[]", "heat"}, true},
		{[]string{"a", "h"}, false}, // a value
		{[]string{"e"}, false},
		{[]string{"b"}, false},
		{[]string{"a", "*", "*", "c"}, false}, // a list is no object
		{[]string{"layers", "heat"}, false},
	} {
		if got := (&peek{head: []byte(text)}).hasPath(c.want...); got != c.has {
			t.Errorf("hasPath(%q) is %v, want %v", c.want, got, c.has)
		}
	}
	for _, other := range []string{"", "[1]", "{}", "{} {\"a\":1}", "x", `"a"`} {
		if (&peek{head: []byte(other)}).hasPath("a") {
			t.Errorf("%q has path a", other)
		}
	}
}
