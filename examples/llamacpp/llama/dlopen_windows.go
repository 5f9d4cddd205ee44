package llama

import "fmt"

// purego leaves libraries to the system's own calls here, and Load refuses before.

func dlopen(path string) (uintptr, error) {
	return 0, fmt.Errorf("%s: shared libraries are loaded on Linux only", path)
}

func dlsym(uintptr, string) (uintptr, error) {
	return 0, fmt.Errorf("shared libraries are loaded on Linux only")
}
