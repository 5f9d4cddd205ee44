package mmaparm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serve runs requests through Serve and returns the replies.
func serve(t *testing.T, requests string) ([]reply, error) {
	t.Helper()
	var out bytes.Buffer
	err := Serve(t.Context(), strings.NewReader(requests), &out)
	var replies []reply
	for line := range strings.Lines(out.String()) {
		var r reply
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("reply %q: %v", line, err)
		}
		replies = append(replies, r)
	}
	return replies, err
}

// pages makes a file of n pages and returns the request that opens it.
func pages(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, n*os.Getpagesize()), 0o644); err != nil {
		t.Fatal(err)
	}
	return opening(path, n*os.Getpagesize())
}

func opening(path string, size int) string {
	return fmt.Sprintf(`{"open":{"threads":3,"files":[{"path":%q,"size":%d}]}}`+"\n", path, size)
}

func TestServePlays(t *testing.T) {
	page := os.Getpagesize()
	requests := pages(t, 10) +
		fmt.Sprintf(`{"place":{"layer":0,"experts":[[[0,0,1]],[[0,%d,2],[0,%d,%d]]]}}`, page-1, 4*page, 5*page) + "\n" +
		`{"place":{"layer":0,"experts":[[]]}}` + "\n" +
		`{"play":[{"layer":0,"experts":[0]},{"layer":0,"experts":[1,2]}]}` + "\n"
	replies, err := serve(t, requests)
	if err != nil || len(replies) != 4 {
		t.Fatalf("got %+v %v, want 4 replies", replies, err)
	}
	for i, r := range replies {
		if r.Error != "" {
			t.Errorf("request %d: got %q", i, r.Error)
		}
	}
	// One page, then two that a range straddles, then five.
	if r := replies[3].Result; r == nil || r.Uses != 2 || r.TouchedBytes != int64(8*page) {
		t.Errorf("got %+v, want 2 uses of 8 pages", r)
	}
}

func TestServeAnswersBadRequestsAndGoesOn(t *testing.T) {
	open := pages(t, 2)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	place := `{"place":{"layer":0,"experts":[[[0,0,1]]]}}` + "\n"
	for _, tt := range []struct{ name, before, bad, word string }{
		{"nothing", "", `{}`, "out of order"},
		{"place first", "", place, "out of order"},
		{"play first", "", `{"play":[{"layer":0,"experts":[]}]}`, "out of order"},
		{"open twice", open, open, "out of order"},
		{"no threads", "", `{"open":{"threads":0,"files":[]}}`, "0 threads"},
		{"many threads", "", `{"open":{"threads":257,"files":[]}}`, "257 threads"},
		{"many files", "", `{"open":{"threads":1,"files":[` + strings.Repeat(`{},`, maxFiles) + `{}]}}`, "4097 files"},
		{"missing file", "", opening(filepath.Join(dir, "missing"), 1), "no such file"},
		{"pipe", "", opening(pipe, 1), "not a regular file"},
		{"folder", "", opening(dir, 1), "not a regular file"},
		{"size", "", strings.Replace(open, `"size":`, `"size":1`, 1), "start again"},
		{"layer out of order", open, `{"place":{"layer":1,"experts":[]}}`, "layer 1"},
		{"negative layer", open, `{"place":{"layer":-1,"experts":[]}}`, "layer -1"},
		{"file", open, `{"place":{"layer":0,"experts":[[[1,0,1]]]}}`, "file 1 of 1"},
		{"negative file", open, `{"place":{"layer":0,"experts":[[[-1,0,1]]]}}`, "file -1"},
		{"behind the end", open, `{"place":{"layer":0,"experts":[[[0,0,1000000]]]}}`, "lie outside"},
		{"far behind the end", open, `{"place":{"layer":0,"experts":[[[0,9223372036854775807,9223372036854775807]]]}}`, "lie outside"},
		{"negative offset", open, `{"place":{"layer":0,"experts":[[[0,-1,1]]]}}`, "lie outside"},
		{"no bytes", open, `{"place":{"layer":0,"experts":[[[0,0,0]]]}}`, "lie outside"},
		{"unknown layer", open + place, `{"play":[{"layer":1,"experts":[]}]}`, "layer 1 of 1"},
		{"unknown expert", open + place, `{"play":[{"layer":0,"experts":[1]}]}`, "expert 1 of 1"},
		{"negative expert", open + place, `{"play":[{"layer":0,"experts":[-1]}]}`, "expert -1"},
	} {
		replies, err := serve(t, tt.before+strings.TrimSuffix(tt.bad, "\n")+"\n{}\n")
		at := strings.Count(tt.before, "\n")
		if err != nil || len(replies) != at+2 || !strings.Contains(replies[at].Error, tt.word) {
			t.Errorf("%s: got %+v %v, want an error that says %q and one more reply", tt.name, replies, err, tt.word)
		}
	}
}

func TestServeEndsAtLinesThatAreNoRequests(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     error
		word     string
	}{
		{"no JSON", "hello\n", nil, "invalid character"},
		{"empty line", "\n", nil, "EOF"},
		{"cut object", "{\n", nil, "unexpected EOF"},
		{"cut line", "{}", io.ErrUnexpectedEOF, "unexpected EOF"},
		{"two objects", "{} {}\n", nil, "more than one"},
		{"unknown field", `{"quit":true}` + "\n", nil, "unknown field"},
		{"wrong type", `{"play":7}` + "\n", nil, "cannot unmarshal"},
		{"number too large", `{"place":{"layer":1e99}}` + "\n", nil, "cannot unmarshal"},
		{"long line", strings.Repeat(" ", maxLine+1) + "\n", errLongLine, "more than"},
		{"long line without an end", strings.Repeat(" ", 2*maxLine), errLongLine, "more than"},
	} {
		replies, err := serve(t, tt.in)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.word) || len(replies) != 0 {
			t.Errorf("%s: got %v %v, want an error that says %q", tt.name, replies, err, tt.word)
		}
	}
	if replies, err := serve(t, ""); err != nil || replies != nil {
		t.Errorf("no input: got %v %v, want nothing", replies, err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	in := pages(t, 1) + `{"place":{"layer":0,"experts":[[[0,0,1]]]}}` + "\n" +
		`{"play":[{"layer":0,"experts":[0],"after_ns":3600000000000},{"layer":0,"experts":[0]}]}` + "\n{}\n"
	var out bytes.Buffer
	if err := Serve(ctx, strings.NewReader(in), &out); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if !strings.Contains(out.String(), "enough") {
		t.Errorf("got replies %s, want the play answered with the cause", out.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

func TestServeTellsOfAFailedWrite(t *testing.T) {
	if err := Serve(t.Context(), strings.NewReader("{}\n"), full{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want %v", err, unix.ENOSPC)
	}
}

func TestBatchesAreShortAndComplete(t *testing.T) {
	var uses []Use
	for i := range 5000 {
		uses = append(uses, Use{Layer: i, Experts: make([]int32, i%300)})
	}
	uses = append(uses, Use{Layer: 5000, Experts: make([]int32, batchNumbers+1)}, Use{Layer: 5001})
	next, parts := 0, 0
	err := batches(uses, func(part []Use) error {
		parts++
		numbers := 0
		for _, u := range part {
			if u.Layer != next {
				t.Fatalf("got use %d, want %d", u.Layer, next)
			}
			next++
			numbers += len(u.Experts) + useNumbers
		}
		if numbers > batchNumbers && len(part) > 1 {
			t.Errorf("got %d numbers in a part of %d uses, want at most %d", numbers, len(part), batchNumbers)
		}
		return nil
	})
	if err != nil || next != len(uses) || parts < 2 {
		t.Errorf("got %d of %d uses in %d parts, %v", next, len(uses), parts, err)
	}
	enough := errors.New("enough")
	if err := batches(uses, func([]Use) error { return enough }); err != enough {
		t.Errorf("got %v, want %v", err, enough)
	}
}

// No input makes the child panic or hang.
func FuzzServe(f *testing.F) {
	open := pages(f, 3)
	place := `{"place":{"layer":0,"experts":[[[0,0,1],[0,4090,100]],[]]}}` + "\n"
	f.Add([]byte(open + place + `{"play":[{"layer":0,"experts":[0,1],"before_ns":5,"after_ns":5}]}` + "\n"))
	f.Add([]byte(open + `{"place":{"layer":0,"experts":[[[0,9223372036854775807,9223372036854775807]]]}}` + "\n"))
	f.Add([]byte("{}\n{"))
	f.Fuzz(func(t *testing.T, in []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_ = Serve(ctx, bytes.NewReader(in), io.Discard)
	})
}
