package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// TargetCheck is what is known of a build before anything is written.
type TargetCheck struct {
	// Devices are those that the build writes to or reads the checkpoint from, in the
	// order of their first file: the store's own device is the first.
	Devices []TargetDevice
	// Unfinished is the folder that a killed build left beside the target; empty: none.
	Unfinished string
}

// TargetDevice is one device, or one folder where the system does not tell devices
// apart.
type TargetDevice struct {
	Dir   string       // a folder on it
	Files []TargetFile // what the build makes there
	// NeedBytes are still to be allocated: the sizes of all files, less what an
	// unfinished build that is resumed or discarded takes already.
	NeedBytes int64
	FreeBytes int64 // -1: the system does not say
	// WriteBytes and ReadBytes pass through the device during a whole build: all is
	// written once and read back once, and the checkpoint's experts are read once.
	WriteBytes, ReadBytes int64
}

// TargetFile is a file that the build makes.
type TargetFile struct {
	Path  string // where it will lie
	Bytes int64
}

// Seconds estimates how long a whole build takes, given how many bytes a second pass
// through each device. Devices work at the same time: the slowest one counts. It is
// 0 if a rate is not positive.
func (c *TargetCheck) Seconds(rate func(*TargetDevice) float64) float64 {
	longest := 0.0
	for i := range c.Devices {
		d := &c.Devices[i]
		r := rate(d)
		if !(r > 0) {
			return 0
		}
		longest = max(longest, float64(d.WriteBytes+d.ReadBytes)/r)
	}
	return longest
}

// CheckTarget looks for everything that can be known to go wrong with a build,
// and writes nothing. The errors are those with which Build would refuse to begin:
// ErrExists, ErrUnfinished, ErrNoSpace, ErrPlan and those of the file system. What
// it found out is returned with the error too, nil if that is nothing.
func CheckTarget(opts BuildOptions) (*TargetCheck, error) {
	b, err := newBuilder(opts)
	if err != nil {
		return nil, err
	}
	left, err := b.lookAround()
	c, spaceErr := b.space(left != nil)
	if c != nil && left != nil {
		c.Unfinished = b.temp
	}
	if err == nil {
		err = spaceErr
	}
	return c, err
}

// lookAround refuses a target that is there, and what a killed build left unless
// it is to be resumed or discarded. It returns what was left, nil for nothing.
func (b *builder) lookAround() (*remains, error) {
	if err := b.mustNotExist(b.dir); err != nil {
		return nil, err
	}
	left, err := b.findRemains()
	if err != nil {
		return left, err
	}
	for _, lane := range b.files() {
		if lane.target == "" || lane.placed {
			continue
		}
		if err := b.mustNotExist(lane.target); err != nil {
			return left, err
		}
		if left == nil || !left.names(lane.temp) {
			if err := b.mustNotExist(lane.temp); err != nil {
				return left, err
			}
		}
	}
	return left, nil
}

func (b *builder) mustNotExist(path string) error {
	_, err := b.fs.Stat(path)
	switch {
	case err == nil:
		return fmt.Errorf("layout: build: %s %w: name another target, or remove it first", path, ErrExists)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("layout: build: %w", err)
	}
	return nil
}

// space adds up what each device has to take and to deliver. With taken, what lies
// in the temporary files already is not needed again.
func (b *builder) space(taken bool) (*TargetCheck, error) {
	s := spaceSum{b: b, known: map[string]int{}}
	parent := filepath.Dir(b.dir)
	meta := b.table.indexSize() + manifestReserve + b.routerSpace() + b.copiesSpace() + b.journalSpace()
	if err := s.file(parent, TargetFile{Path: b.dir, Bytes: meta}, 0, ""); err != nil {
		return nil, err
	}
	for _, lane := range b.files() {
		dir, path := parent, filepath.Join(b.dir, filepath.Base(lane.temp))
		if lane.target != "" {
			dir, path = filepath.Dir(lane.target), lane.target
		}
		old := ""
		if taken {
			old = lane.path()
		}
		if err := s.file(dir, TargetFile{Path: path, Bytes: lane.size}, lane.size, old); err != nil {
			return nil, err
		}
	}
	s.sources()
	return &s.check, s.askFree()
}

// spaceSum adds up by device.
type spaceSum struct {
	b     *builder
	check TargetCheck
	known map[string]int
}

func (s *spaceSum) device(dir string) (*TargetDevice, error) {
	info, err := s.b.fs.Stat(dir)
	if err != nil {
		return nil, err
	}
	key := dir
	if id, ok := deviceOf(info); ok {
		key = fmt.Sprintf("device %d", id)
	}
	if _, ok := s.known[key]; !ok {
		s.known[key] = len(s.check.Devices)
		s.check.Devices = append(s.check.Devices, TargetDevice{Dir: dir, FreeBytes: -1})
	}
	return &s.check.Devices[s.known[key]], nil
}

// file adds a file in a folder, of which readBack bytes are read back, and old is
// what lies there already.
func (s *spaceSum) file(dir string, f TargetFile, readBack int64, old string) error {
	d, err := s.device(dir)
	if err != nil {
		return fmt.Errorf("layout: build: folder of the target: %w", err)
	}
	d.Files = append(d.Files, f)
	d.NeedBytes += f.Bytes
	d.WriteBytes += f.Bytes
	d.ReadBytes += readBack
	if old != "" {
		if info, err := s.b.fs.Stat(old); err == nil {
			d.NeedBytes -= min(allocatedBytes(info), f.Bytes)
		}
	}
	return nil
}

// sources adds the bytes of the experts to the devices that they are read from. A
// checkpoint that is not there fails later, with more to say.
func (s *spaceSum) sources() {
	from := make([]int64, len(s.b.cp.Files))
	for l := range s.b.cp.Layers {
		for i := range s.b.cp.Layers[l].Tensors {
			t := &s.b.cp.Layers[l].Tensors[i]
			for e := range s.b.cp.Shape.Experts {
				if span := t.Span(e); span.File >= 0 && span.File < len(from) {
					from[span.File] += span.Bytes
				}
			}
		}
	}
	for i, n := range from {
		if d, err := s.device(filepath.Dir(s.b.cp.Files[i].Path)); err == nil {
			d.ReadBytes += n
		}
	}
}

// askFree compares with what is free, and returns the first device that lacks space.
func (s *spaceSum) askFree() error {
	var lacking error
	for i := range s.check.Devices {
		d := &s.check.Devices[i]
		free, err := s.b.fs.Free(d.Dir)
		if err != nil && len(d.Files) == 0 || errors.Is(err, errors.ErrUnsupported) {
			continue // the system can't say: writing will tell
		}
		if err != nil {
			return fmt.Errorf("layout: build: %w", err)
		}
		d.FreeBytes = free
		if free < d.NeedBytes && lacking == nil {
			lacking = fmt.Errorf("layout: build: %w: %s has %d bytes free, the store needs %d there: free %d bytes or spread the store over more lanes",
				ErrNoSpace, d.Dir, free, d.NeedBytes, d.NeedBytes-free)
		}
	}
	return lacking
}
