package main

import (
	"os"

	"outrider/router/learned"
)

// writeNetwork makes a network's file. It overwrites nothing unless forced.
func writeNetwork(path string, m *learned.Model, force bool) (size int64, err error) {
	return fileWriter{
		mode:  0o644,
		keep:  !force,
		write: m.Save,
		check: checkNetwork,
	}.to(path)
}

// checkNetwork proves that what was written can be read.
func checkNetwork(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // nothing was written
	_, err = learned.Load(f)
	return err
}
