package mmaparm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"outrider/internal/dummystore"
	"outrider/layout"

	"golang.org/x/sys/unix"
)

// The test binary plays the processes that the tests need, told by its first
// argument.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "child":
			exit(Serve(context.Background(), os.Stdin, os.Stdout))
		case "parent":
			exit(parent(os.Args[2]))
		case "liar":
			fmt.Println(`{"result":`)
			exit(nil)
		case "mute":
			fmt.Fprintln(os.Stderr, "nothing to say")
			os.Exit(3)
		case "deaf":
			time.Sleep(time.Hour)
		}
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// parent starts an arm, tells its process and its group, and waits to be killed.
func parent(dir string) error {
	store, err := layout.OpenStore(layout.OS(), dir, layout.Direct)
	if err != nil {
		return err
	}
	a, err := Start(context.Background(), os.Args[0], []string{"child"}, Options{Source: store, BudgetBytes: 1 << 20})
	if err != nil {
		return err
	}
	fmt.Println(a.child.pid(), a.limit.Group)
	time.Sleep(time.Hour)
	return nil
}

var testShape = layout.Shape{Layers: 4, Experts: 8, TopK: 2}

// Records of one store are large enough for readahead not to bring all, 32 MiB in
// all; those of the other only have to be there.
const (
	largeRecord = 1 << 20
	smallRecord = 64 << 10
)

// openDummy builds a store on a disk and opens it.
func openDummy(t *testing.T, recordBytes int64) (*layout.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dummy")
	if _, err := dummystore.Build(t.Context(), dummystore.Options{Shape: testShape, RecordBytes: recordBytes, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	store, err := layout.OpenStore(layout.OS(), dir, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store, dir
}

// onDisk skips a test where pages cannot leave memory.
func onDisk(t *testing.T, dir string) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if uint32(st.Type) == unix.TMPFS_MAGIC || uint32(st.Type) == unix.RAMFS_MAGIC {
		t.Skipf("%s lies in memory (tmpfs), where nothing faults for real: set TMPDIR to a folder on a disk", dir)
	}
}

func startArm(t *testing.T, o Options) *Arm {
	t.Helper()
	a, err := Start(t.Context(), os.Args[0], []string{"child"}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return a
}

// limited starts an arm and skips the test where it cannot be limited.
func limited(t *testing.T, o Options) *Arm {
	t.Helper()
	a := startArm(t, o)
	if a.Limit().Bytes == 0 {
		if os.Geteuid() != 0 {
			t.Skipf("not root: %v", a.Limit())
		}
		t.Skipf("root, but %v", a.Limit())
	}
	return a
}

// everything uses all experts once, layer by layer.
func everything() []Use {
	var uses []Use
	for l := range testShape.Layers {
		u := Use{Layer: l}
		for e := range testShape.Experts {
			u.Experts = append(u.Experts, int32(e))
		}
		uses = append(uses, u)
	}
	return uses
}

func play(t *testing.T, a *Arm, uses []Use) Result {
	t.Helper()
	r, err := a.Play(t.Context(), uses)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
