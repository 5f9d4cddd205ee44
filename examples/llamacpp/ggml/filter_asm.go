//go:build (amd64 || arm64) && !windows

package ggml

// filterEntry is the address of the assembly that C may call.
func filterEntry() uintptr

var filterAddress = filterEntry()
