package torchfile

// global is a name of Python's that the pickle uses. Those that are admitted
// are listed here; none is ever called: the machine knows what each means.
type global struct{ module, name string }

func (g global) String() string { return g.module + "." + g.name }

var (
	orderedDict   = global{"collections", "OrderedDict"}
	rebuildTensor = global{"torch._utils", "_rebuild_tensor_v2"}
)

// dtypes are the storages of numbers, and how wide a number is.
var dtypes = map[global]struct {
	dtype string
	bytes int64
}{
	{"torch", "ByteStorage"}:     {"uint8", 1},
	{"torch", "CharStorage"}:     {"int8", 1},
	{"torch", "BoolStorage"}:     {"bool", 1},
	{"torch", "ShortStorage"}:    {"int16", 2},
	{"torch", "IntStorage"}:      {"int32", 4},
	{"torch", "LongStorage"}:     {"int64", 8},
	{"torch", "HalfStorage"}:     {"float16", 2},
	{"torch", "BFloat16Storage"}: {"bfloat16", 2},
	{"torch", "FloatStorage"}:    {"float32", 4},
	{"torch", "DoubleStorage"}:   {"float64", 8},
}

// widths is the width of each dtype by its name.
var widths = func() map[string]int64 {
	m := map[string]int64{}
	for _, d := range dtypes {
		m[d.dtype] = d.bytes
	}
	return m
}()

func admitted(g global) bool {
	_, isStorage := dtypes[g]
	return isStorage || g == orderedDict || g == rebuildTensor
}
