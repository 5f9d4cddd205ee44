//go:build !linux

package layout

import "os"

// directReads tells whether this package knows direct reads here.
const directReads = false

func openDirect(string) (File, string, error) {
	return nil, "direct reads are not implemented on this system", nil
}

func dropPages(*os.File, int64, int64) {}

func readNoFurther(*os.File) {}

func renameNoReplace(oldName, newName string) error { return renameChecked(oldName, newName) }
