// Package filetest is the conformance suite of layout.File and layout.VectorFile:
// what every engine, and every wrapper of one, must keep.
//
// It knows nothing of how a file reads. It takes the alignment from File.Direct
// and asks no more than that, so that a file which secretly needs more fails. All
// buffers lie between guards that must come back untouched.
package filetest
