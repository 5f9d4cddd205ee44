package importer

import (
	"errors"
	"io"
)

// npyFile is an array open for reading, number after number.
type npyFile struct {
	*npyHeader
	file *file
	r    *reader
	at   int64 // bytes read
	buf  []byte
}

// openNpy opens an array and reads its header. Arrays in Fortran order, in which
// a token's numbers lie far apart, are refused.
func (f *file) openNpy() (*npyFile, error) {
	r, err := f.open()
	if err != nil {
		return nil, err
	}
	h, err := readNpyHeader(r)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = f.damaged(place{}, "the file ends inside the header of a NumPy array")
	case err != nil:
		err = f.damaged(place{}, "%v", err)
	case h.fortran && len(h.shape) > 1:
		err = f.damaged(place{}, "the array is in Fortran order; save it with numpy.save(file, numpy.ascontiguousarray(a))")
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &npyFile{npyHeader: h, file: f, r: r, at: h.size}, nil
}

// next reads the bytes of n numbers; they are valid until the next call. What
// it allocates the file really has, but for one row of n.
func (a *npyFile) next(n int) ([]byte, error) {
	if size := n * a.width; cap(a.buf) < size {
		a.buf = make([]byte, size)
	}
	a.buf = a.buf[:n*a.width]
	got, err := io.ReadFull(a.r, a.buf)
	at := place{offset: a.at}
	a.at += int64(got)
	if err != nil {
		return nil, endOf(a.file, at, err, "the array, which is "+a.form())
	}
	return a.buf, nil
}

// end proves that nothing follows the array.
func (a *npyFile) end() error {
	if _, err := a.r.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return a.file.failed(err)
		}
		return a.file.damaged(place{offset: a.at}, "more bytes follow the array, which is %s", a.form())
	}
	return nil
}

func (a *npyFile) close() { a.r.Close() } // nothing was written
