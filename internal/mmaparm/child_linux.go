package mmaparm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is the process that maps. One goroutine starts it, waits for it and
// ends with it; done is closed then, and waitErr may be read.
type child struct {
	cmd     *exec.Cmd
	in      *os.File // its standard input
	out     *os.File // its standard output
	replies *lines
	stderr  tail
	done    chan struct{}
	waitErr error

	mu   sync.Mutex
	told bool // its end is no news: we killed it, or an error has said so
}

// startChild starts the process with pipes of our own: those of exec.Cmd are
// closed as soon as the process ends, with the last reply in them.
func startChild(exe string, args []string, threads int) (*child, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("mmaparm: %w", err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mmaparm: %w", err), inR.Close(), inW.Close())
	}
	c := &child{cmd: exec.Command(exe, args...), in: inW, out: outR, replies: newLines(outR), done: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = inR, outW, &c.stderr
	c.cmd.WaitDelay = time.Second
	// A thread that waits for a page holds its P: the touching threads get one
	// each, and one is left for the rest. The small heap growth keeps the
	// child's share of its cgroup small. A signal that preempts a thread in a
	// fault would have the kernel begin the fault anew and call it a minor one.
	c.cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(threads+1), "GOGC=25", "GODEBUG=asyncpreemptoff=1")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // an interrupt at the terminal is the parent's to handle
	}
	started := make(chan error)
	go c.run(started)
	err = <-started
	err = errors.Join(err, inR.Close(), outW.Close())
	if err != nil {
		c.kill()
		<-c.done
		return nil, errors.Join(fmt.Errorf("mmaparm: start %s: %w", exe, err), inW.Close(), outR.Close())
	}
	return c, nil
}

// run keeps the thread that starts the child: the kernel sends the child the
// parent's death signal when that thread ends.
func (c *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	err := c.cmd.Start()
	started <- err
	if err == nil {
		c.waitErr = c.cmd.Wait()
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = true
	if c.cmd.Process != nil {
		_ = c.cmd.Process.Kill() // an error means that it has ended
	}
}

func (c *child) ask(req request) (reply, error) {
	if err := send(c.in, req); err != nil {
		return reply{}, err
	}
	var rep reply
	err := c.replies.next(&rep)
	return rep, err
}

// explain adds to a failed exchange how the child ended. A child that talks
// nonsense is ended.
func (c *child) explain(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.EPIPE) {
		c.kill()
		return fmt.Errorf("mmaparm: talk to the child: %w", err)
	}
	select {
	case <-c.done:
	case <-time.After(closeGrace):
	}
	c.kill() // if it goes on without its output; and Close need not tell again
	<-c.done
	how := "ended early"
	if c.waitErr != nil {
		how = c.waitErr.Error()
	}
	return fmt.Errorf("mmaparm: the child has ended: %s%s: %w", how, c.stderr.quote(), err)
}

// close ends the child's input, waits for its end, and kills it if that takes
// longer than grace. The error is that of a child that failed by itself.
func (c *child) close(grace time.Duration) error {
	err := c.in.Close()
	select {
	case <-c.done:
	case <-time.After(grace):
		c.kill()
		<-c.done
	}
	err = errors.Join(err, c.out.Close())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waitErr != nil && !c.told {
		err = errors.Join(err, fmt.Errorf("mmaparm: the child failed: %w%s", c.waitErr, c.stderr.quote()))
	}
	return err
}

// tail keeps the last bytes that were written to it. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailBytes = 2 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p[max(0, len(p)-tailBytes):]...)
	t.kept = t.kept[max(0, len(t.kept)-tailBytes):]
	return len(p), nil
}

// quote is what was kept, to be put behind a message.
func (t *tail) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(string(t.kept)); text != "" {
		return fmt.Sprintf(" (it said %q)", text)
	}
	return ""
}
