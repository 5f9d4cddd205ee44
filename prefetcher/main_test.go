package prefetcher

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// several says that the files of all drives have a Reader.
var several bool

// TestMain runs all tests twice: with files that workers read one request at a time,
// and with files of which one worker carries several.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if bench := flag.Lookup("test.bench"); code == 0 && (bench == nil || bench.Value.String() == "") {
		several = true
		if code = m.Run(); code != 0 {
			fmt.Fprintln(os.Stderr, "prefetcher: the tests failed on files with a Reader")
		}
	}
	os.Exit(code)
}
