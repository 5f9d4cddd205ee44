package torchfile

// Tuple is a Python tuple. Shared: do not change it.
type Tuple []any

// List is a Python list.
type List struct{ Items []any }

// Dict is a Python dict, in its order. Keys are whatever the file has; those
// that are no texts are found only by walking.
type Dict struct {
	Keys, Values []any
	byName       map[string]int
}

// Get is the value under a text key, nil and false if there is none.
func (d *Dict) Get(key string) (any, bool) {
	i, ok := d.byName[key]
	if !ok {
		return nil, false
	}
	return d.Values[i], true
}

// set adds a pair; as in Python a later value replaces an earlier one. Equal keys
// that are no texts are kept apart: nobody here looks them up.
func (d *Dict) set(key, value any) {
	name, ok := key.(string)
	if ok {
		if i, there := d.byName[name]; there {
			d.Values[i] = value
			return
		}
		if d.byName == nil {
			d.byName = map[string]int{}
		}
		d.byName[name] = len(d.Keys)
	}
	d.Keys, d.Values = append(d.Keys, key), append(d.Values, value)
}

// storage is the array of numbers that tensors are views of.
type storage struct {
	dtype string // "int32"
	key   string // of its zip entry
	numel int64
}

// Tensor is a view of a storage of numbers.
type Tensor struct {
	DType  string  // as PyTorch calls it: "int32"
	Shape  []int64 // slowest first; empty for a single number; do not change
	stride []int64
	offset int64 // in elements of the storage
	store  *storage
}

// Numel is how many numbers the tensor has.
func (t *Tensor) Numel() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d // checked when the tensor was made
	}
	return n
}

// name is what a value is called in messages.
func name(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64:
		return "an int"
	case float64:
		return "a float"
	case string:
		return "a str"
	case Tuple:
		return "a tuple"
	case *List:
		return "a list"
	case *Dict:
		return "a dict"
	case *Tensor:
		return "a tensor"
	case *storage:
		return "a storage"
	case global:
		return v.String()
	}
	return "a mark"
}

// Name is what a value is called in messages: "a list".
func Name(v any) string { return name(v) }
