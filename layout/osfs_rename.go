package layout

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
)

// renameChecked looks before it renames. Between the two another process can
// create the name; only the kernel's own check (Linux) excludes that.
func renameChecked(oldName, newName string) error {
	_, err := os.Lstat(newName)
	if err == nil {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: fs.ErrExist}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(oldName, newName)
}

func syncDir(name string) error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be opened for syncing there; NTFS journals them
	}
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
