package mmaparm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Serve is the child: it answers the requests of an Arm that come in on r until r
// ends, and then returns nil. A request that cannot be carried out is answered
// with an error, and Serve goes on; a line that is no request, a failed write and
// the end of ctx end it. ctx is looked at between uses and while compute is
// imitated; a Serve that waits for a request ends with r.
//
// A command calls it on its standard input and output, and writes nothing else
// to the latter. It starts goroutines to touch pages and joins them.
func Serve(ctx context.Context, r io.Reader, w io.Writer) (err error) {
	var m mapping
	defer func() { err = errors.Join(err, m.close()) }()
	in := newLines(r)
	for {
		var req request
		if err := in.next(&req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("mmaparm: read request: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("mmaparm: %w", context.Cause(ctx))
		}
		var rep reply
		if rep.Result, err = m.answer(ctx, &req); err != nil {
			rep = reply{Error: err.Error()}
		}
		if err := send(w, rep); err != nil {
			return fmt.Errorf("mmaparm: write reply: %w", err)
		}
	}
}

func (m *mapping) answer(ctx context.Context, req *request) (*Result, error) {
	switch {
	case req.Open != nil && m.threads == 0:
		return nil, m.mapFiles(req.Open)
	case req.Place != nil && m.threads > 0:
		return nil, m.place(req.Place)
	case req.Play != nil && m.threads > 0:
		return m.play(ctx, req.Play)
	}
	return nil, errors.New("mmaparm: a request out of order: want open once, then place and play")
}

// play carries out some uses. All are checked before the first.
func (m *mapping) play(ctx context.Context, uses []Use) (*Result, error) {
	for i := range uses {
		if err := m.check(&uses[i]); err != nil {
			return nil, err
		}
	}
	r := new(Result)
	read := readBytes()
	start := time.Now()
	for i := range uses {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("mmaparm: %w", context.Cause(ctx))
		}
		if err := m.use(ctx, &uses[i], r); err != nil {
			return nil, err
		}
	}
	r.Took = time.Since(start)
	r.ReadBytes = -1
	if now := readBytes(); read >= 0 && now >= read {
		r.ReadBytes = now - read
	}
	return r, nil
}

func (m *mapping) use(ctx context.Context, u *Use, r *Result) error {
	r.Computed += Compute(ctx, u.Before)
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		return fmt.Errorf("mmaparm: getrusage: %w", err)
	}
	start := time.Now()
	bytes, err := m.touch(u)
	r.Stall += time.Since(start)
	if err != nil {
		return err
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		return fmt.Errorf("mmaparm: getrusage: %w", err)
	}
	r.Uses++
	r.TouchedBytes += bytes
	r.MajorFaults += int64(after.Majflt - before.Majflt)
	r.MinorFaults += int64(after.Minflt - before.Minflt)
	r.Computed += Compute(ctx, u.After)
	return nil
}

// readBytes is what this process has had read from devices, as /proc tells it;
// -1 where it does not.
func readBytes() int64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "read_bytes:"); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}
