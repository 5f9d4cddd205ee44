package llama

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/jupiterrider/ffi"
)

// Version is the llama.cpp that this module is written for. Its structures are passed
// by layout, so no other will do; yzma v1.28.0 is written for the same.
const Version = "0.5.0"

// ErrLibrary: the library is not there, or not the one that this module can use.
var ErrLibrary = errors.New("llama.cpp cannot be used")

// Lib is llama.cpp, loaded. There is one a process: the library has global state.
// Safe for concurrent use.
type Lib struct {
	Dir     string
	Version string // as the library says it
	CPU     string // the variant of the CPU backend that fits this machine

	log        *logTail
	fromUser   ffi.Fun // llama_model_init_from_user
	ggufParse  func(data *byte, size uint64, noAlloc uintptr, ctx uintptr) uintptr
	ggufFree   func(uintptr)
	cpuType    func() uintptr
	cpuBuffer  func(memory uintptr, size uint64) uintptr
	tensorSet  func(tensor uintptr, data *byte, offset, size uint64)
	tensorName func(tensor uintptr) string
	tensorData func(tensor uintptr) uintptr
	tensorSize func(tensor uintptr) uint64
}

var loading struct {
	sync.Mutex
	lib *Lib
}

// Load loads libllama and its ggml from a folder (fetch.sh makes one), starts the
// backends, and checks the version. A second call returns the same library, and an
// error for another folder. Errors are ErrLibrary, with what to do.
func Load(dir string) (*Lib, error) {
	loading.Lock()
	defer loading.Unlock()
	if l := loading.lib; l != nil {
		if same(l.Dir, dir) {
			return l, nil
		}
		return nil, fmt.Errorf("llama: %w: a process loads one copy, and %s is loaded already", ErrLibrary, l.Dir)
	}
	l, err := load(dir)
	if err != nil {
		return nil, fmt.Errorf("llama: %w: %s: %w", ErrLibrary, dir, err)
	}
	loading.lib = l
	return l, nil
}

func same(a, b string) bool {
	x, errX := filepath.Abs(a)
	y, errY := filepath.Abs(b)
	return errX == nil && errY == nil && x == y
}

func load(dir string) (*Lib, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("expert memory at fixed addresses exists on Linux only")
	}
	for _, name := range []string{"libllama.so", "libggml.so", "libggml-base.so"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("%w: run fetch.sh, or name a folder with llama.cpp v%s by --lib or YZMA_LIB", err, Version)
		}
	}
	l := &Lib{Dir: dir}
	if err := l.check(); err != nil {
		return nil, err
	}
	if err := llama.Load(dir); err != nil {
		return nil, fmt.Errorf("yzma: %w", err)
	}
	l.log = captureLog()
	if err := llama.GGMLBackendLoadAllFromPath(dir); err != nil {
		return nil, fmt.Errorf("backends: %w", err)
	}
	llama.BackendInit()
	dev := llama.GGMLBackendDeviceByType(llama.GGMLBackendDeviceTypeCPU)
	if dev == 0 {
		return nil, fmt.Errorf("no CPU backend (libggml-cpu-*.so) there fits this machine%s", l.log.words())
	}
	l.CPU = llama.GGMLBackendDeviceDescription(dev)
	return l, l.bind()
}

// check asks the library its version before anything is passed to it by layout.
func (l *Lib) check() error {
	h, err := dlopen(filepath.Join(l.Dir, "libllama.so"))
	if err != nil {
		return err
	}
	at, err := dlsym(h, "llama_version")
	if err != nil {
		return fmt.Errorf("it has no llama_version, and so is older than v%s, which this module is written for: run fetch.sh", Version)
	}
	var version func() string
	purego.RegisterFunc(&version, at)
	l.Version = version()
	if !matches(l.Version) {
		return fmt.Errorf("it is llama.cpp %s, and this module (with yzma v1.28.0) is written for %s: run fetch.sh, or build that version", l.Version, Version)
	}
	return nil
}

// matches takes "0.5.0" and builds of it, "0.5.0-dev".
func matches(version string) bool {
	return version == Version || len(version) > len(Version) && version[:len(Version)] == Version && version[len(Version)] == '-'
}

// bind finds the functions that yzma does not have.
func (l *Lib) bind() (err error) {
	defer func() {
		if r := recover(); r != nil { // purego's word for a missing symbol
			err = fmt.Errorf("%v", r)
		}
	}()
	base, err := dlopen(filepath.Join(l.Dir, "libggml-base.so"))
	if err != nil {
		return err
	}
	purego.RegisterLibFunc(&l.ggufParse, base, "gguf_init_from_buffer")
	purego.RegisterLibFunc(&l.ggufFree, base, "gguf_free")
	purego.RegisterLibFunc(&l.cpuType, base, "ggml_backend_cpu_buffer_type")
	purego.RegisterLibFunc(&l.cpuBuffer, base, "ggml_backend_cpu_buffer_from_ptr")
	purego.RegisterLibFunc(&l.tensorSet, base, "ggml_backend_tensor_set")
	purego.RegisterLibFunc(&l.tensorName, base, "ggml_get_name")
	purego.RegisterLibFunc(&l.tensorData, base, "ggml_get_data")
	purego.RegisterLibFunc(&l.tensorSize, base, "ggml_nbytes")
	lib, err := ffi.Load(filepath.Join(l.Dir, "libllama.so"))
	if err != nil {
		return err
	}
	ptr := &ffi.TypePointer
	l.fromUser, err = lib.Prep("llama_model_init_from_user", ptr, ptr, ptr, ptr, &modelParams)
	return err
}

// modelParams is struct llama_model_params, as llama.ModelParams has it: ten words
// for pointers and pairs of numbers, then flags.
var modelParams = ffi.NewType(
	&ffi.TypePointer, &ffi.TypePointer,
	&ffi.TypeSint32, &ffi.TypeSint32, &ffi.TypeSint32, &ffi.TypeSint32, &ffi.TypeSint32,
	&ffi.TypePointer, &ffi.TypePointer, &ffi.TypePointer, &ffi.TypePointer,
	&ffi.TypeUint8, &ffi.TypeUint8, &ffi.TypeUint8, &ffi.TypeUint8, &ffi.TypeUint8, &ffi.TypeUint8)
