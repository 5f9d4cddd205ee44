package mmaparm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"sync"

	"outrider/layout"

	"golang.org/x/sys/unix"
)

// mapping is what the child has mapped, and where the experts lie in it.
type mapping struct {
	threads int
	page    int64
	files   []mappedFile
	layers  [][][]extent // by layer and expert
	placed  int          // experts in all
	extents int
	sums    []byte // one a thread: what was read, so that reading is not left out
}

type mappedFile struct {
	path string
	data []byte
}

// maxExtents bounds what the child holds for a source, about 800 MB.
const maxExtents = 1 << 25

// mapFiles maps the files as llama.cpp does. The caller unmaps, also after an error.
func (m *mapping) mapFiles(open *openRequest) error {
	if open.Threads < 1 || open.Threads > maxThreads {
		return fmt.Errorf("mmaparm: %d threads, want 1 to %d", open.Threads, maxThreads)
	}
	if len(open.Files) > maxFiles {
		return fmt.Errorf("mmaparm: %d files, want at most %d", len(open.Files), maxFiles)
	}
	m.threads, m.page = open.Threads, int64(os.Getpagesize())
	m.sums = make([]byte, m.threads)
	for _, f := range open.Files {
		data, err := mapFile(f)
		if err != nil {
			return fmt.Errorf("mmaparm: map %s: %w", f.Path, err)
		}
		m.files = append(m.files, mappedFile{path: f.Path, data: data})
	}
	return nil
}

// mapFile returns nil for an empty file, which cannot be mapped. It looks before
// it opens: opening a pipe would wait.
func mapFile(want openFile) ([]byte, error) {
	info, err := os.Stat(want.Path)
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("not a regular file (%v)", info.Mode().Type())
	case info.Size() != want.Size:
		return nil, fmt.Errorf("it has %d bytes, but had %d when it was opened: start again", info.Size(), want.Size)
	case want.Size == 0:
		return nil, nil
	case want.Size > math.MaxInt:
		return nil, fmt.Errorf("%d bytes are more than can be mapped here", want.Size)
	}
	f, err := os.Open(want.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping stays
	return unix.Mmap(int(f.Fd()), 0, int(want.Size), unix.PROT_READ, unix.MAP_SHARED)
}

func (m *mapping) close() error {
	var errs []error
	for _, f := range m.files {
		if f.data != nil {
			errs = append(errs, unix.Munmap(f.data))
		}
	}
	m.files = nil
	return errors.Join(errs...)
}

// place adds experts to a layer, after checking that they lie in the files.
func (m *mapping) place(p *placeRequest) error {
	if p.Layer < 0 || p.Layer >= layout.MaxLayers || p.Layer > len(m.layers) {
		return fmt.Errorf("mmaparm: layer %d, want the layers in order and at most %d", p.Layer, layout.MaxLayers)
	}
	for _, extents := range p.Experts {
		if m.placed++; m.placed > layout.MaxRecords {
			return fmt.Errorf("mmaparm: more than %d experts", layout.MaxRecords)
		}
		if m.extents += len(extents); m.extents > maxExtents {
			return fmt.Errorf("mmaparm: more than %d extents", maxExtents)
		}
		for _, x := range extents {
			if x[0] < 0 || x[0] >= int64(len(m.files)) {
				return fmt.Errorf("mmaparm: layer %d: file %d of %d", p.Layer, x[0], len(m.files))
			}
			if size := int64(len(m.files[x[0]].data)); x[1] < 0 || x[2] < 1 || x[1] > size-x[2] {
				return fmt.Errorf("mmaparm: layer %d: %d bytes at %d lie outside %s, which has %d",
					p.Layer, x[2], x[1], m.files[x[0]].path, size)
			}
		}
	}
	if p.Layer == len(m.layers) {
		m.layers = append(m.layers, nil)
	}
	m.layers[p.Layer] = append(m.layers[p.Layer], p.Experts...)
	return nil
}

// check finds a use of what is not there.
func (m *mapping) check(u *Use) error {
	if u.Layer < 0 || u.Layer >= len(m.layers) {
		return fmt.Errorf("mmaparm: use of layer %d of %d", u.Layer, len(m.layers))
	}
	for _, e := range u.Experts {
		if e < 0 || int(e) >= len(m.layers[u.Layer]) {
			return fmt.Errorf("mmaparm: use of layer %d expert %d of %d", u.Layer, e, len(m.layers[u.Layer]))
		}
	}
	return nil
}

// touch reads a byte of each page of a checked use and counts the pages' bytes.
func (m *mapping) touch(u *Use) (int64, error) {
	if m.threads == 1 || len(u.Experts) == 0 {
		return m.touchShare(u, 0)
	}
	bytes, errs := make([]int64, m.threads), make([]error, m.threads)
	var wg sync.WaitGroup
	for t := range m.threads {
		wg.Go(func() { bytes[t], errs[t] = m.touchShare(u, t) })
	}
	wg.Wait()
	var sum int64
	for _, n := range bytes {
		sum += n
	}
	return sum, errors.Join(errs...)
}

// touchShare touches one thread's share of every extent. Where the kernel
// cannot bring a page (the file was cut, the drive failed), it is an error.
func (m *mapping) touchShare(u *Use, thread int) (bytes int64, err error) {
	var path string
	var at int64
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("mmaparm: page at %d of %s cannot be read: the file was cut or its device failed: %v", at, path, r)
		}
	}()
	var sum byte
	for _, e := range u.Experts {
		for _, x := range m.layers[u.Layer][e] {
			f := &m.files[x[0]]
			path = f.path
			first, pages := x[1]/m.page, (x[1]+x[2]-1)/m.page-x[1]/m.page+1
			from, to := pages*int64(thread)/int64(m.threads), pages*int64(thread+1)/int64(m.threads)
			for p := from; p < to; p++ {
				at = (first + p) * m.page
				sum ^= f.data[at]
			}
			bytes += (to - from) * m.page
		}
	}
	m.sums[thread] ^= sum
	return bytes, nil
}
