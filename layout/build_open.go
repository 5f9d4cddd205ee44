package layout

import "os"

var _ ResumeFS = osFS{}

func (osFS) OpenWrite(name string) (WriteFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}
