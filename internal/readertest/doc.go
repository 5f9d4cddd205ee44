// Package readertest is the conformance suite of layout.Reader: tags, places,
// vectors, ends, refusals, many reads at once, and the end of a reader.
//
// Through makes a layout.File of which every read goes through a Reader, so that the
// suite of files (filetest) holds for it too.
package readertest
