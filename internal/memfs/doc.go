// Package memfs is a layout.WriteFS in memory, for tests: safe for concurrent
// use, with files that can demand the alignment of direct reads and a limit of
// space that can run out.
//
// Names are paths in the operating system's form. The roots "/" and "." exist;
// other folders are made with Mkdir or MkdirAll. A file that was opened stays
// readable when its name is removed, as on Unix; what is written afterwards is
// seen by it. One mutex guards all: no call waits while it is held.
package memfs
