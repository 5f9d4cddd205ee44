//go:build !windows

package llama

import "github.com/ebitengine/purego"

// dlopen loads a shared library for itself and for those that need it.
func dlopen(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

// dlsym is the address of a library's function.
func dlsym(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }
