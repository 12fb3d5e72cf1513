//go:build unix

package output

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func put(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expect looks at a file, and that nothing is left beside the files that the test made.
func expect(t *testing.T, file, content string, mode fs.FileMode, names ...string) {
	t.Helper()
	data, err := os.ReadFile(file)
	check(t, err)
	info, err := os.Stat(file)
	check(t, err)
	if string(data) != content || info.Mode().Perm() != mode {
		t.Errorf("%s has %q and mode %o, expected %q and %o", file, data, info.Mode().Perm(), content, mode)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	check(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := strings.Join(names, " "); strings.Join(got, " ") != want {
		t.Errorf("the folder has %q, expected %s", got, want)
	}
}

// The umask is that of the process, so this test is alone.
func TestModes(t *testing.T) { //nolint:paralleltest // the umask is that of the process
	defer syscall.Umask(syscall.Umask(0o027))
	folder := t.TempDir()
	file := filepath.Join(t.TempDir(), "a.csv")
	check(t, Write(file, put("one")))
	expect(t, file, "one", 0o640, "a.csv")
	check(t, os.Chmod(file, 0o664))
	check(t, Write(file, put("two")))
	expect(t, file, "two", 0o664, "a.csv")
	if err := Write(file, func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return io.ErrUnexpectedEOF }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error is %v, expected that of the writer", err)
	}
	expect(t, file, "two", 0o664, "a.csv")
	f, err := Create(file)
	check(t, err)
	check(t, put("thr")(f))
	f.Discard()
	f.Discard()
	expect(t, file, "two", 0o664, "a.csv")

	for _, mode := range []os.FileMode{0o600, 0o640} {
		secret := filepath.Join(folder, "b.csv")
		f, err := CreatePrivate(secret)
		check(t, err)
		check(t, put("four")(f))
		check(t, f.Close())
		expect(t, secret, "four", mode, "b.csv")
		check(t, os.Chmod(secret, 0o640))
	}
}

func TestSymbolicLinks(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	check(t, os.Mkdir(filepath.Join(folder, "data"), 0o750))
	target := filepath.Join(folder, "data", "a.csv")
	check(t, os.WriteFile(target, []byte("before"), 0o604))
	check(t, os.Chmod(target, 0o604))
	link := filepath.Join(folder, "link")
	check(t, os.Symlink("data/a.csv", link))
	check(t, os.Symlink(link, filepath.Join(folder, "again")))
	check(t, Write(filepath.Join(folder, "again"), put("after")))
	expect(t, target, "after", 0o604, "a.csv")
	if to, err := os.Readlink(link); err != nil || to != "data/a.csv" {
		t.Errorf("the link names %q (%v), expected data/a.csv as before", to, err)
	}

	// One that names nothing yet.
	check(t, os.Remove(target))
	check(t, Write(link, put("new")))
	if data, err := os.ReadFile(target); err != nil || string(data) != "new" {
		t.Errorf("%q, %v, expected a new file where the link leads", data, err)
	}

	check(t, os.Symlink("loop", filepath.Join(folder, "loop")))
	if err := Write(filepath.Join(folder, "loop"), put("")); err == nil {
		t.Error("a link to itself was written")
	}
}

func TestWhatCannotBeReplaced(t *testing.T) {
	t.Parallel()
	check(t, Write("/dev/null", put("gone")))
	if info, err := os.Lstat("/dev/null"); err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		t.Fatalf("/dev/null is %v (%v), expected a device", info.Mode(), err)
	}

	folder := t.TempDir()
	fifo := filepath.Join(folder, "fifo")
	check(t, syscall.Mkfifo(fifo, 0o600))
	read := make(chan string)
	go func() { data, _ := os.ReadFile(fifo); read <- string(data) }()
	check(t, Write(fifo, put("by the pipe")))
	if got := <-read; got != "by the pipe" {
		t.Errorf("%q came by the pipe, expected what was written", got)
	}
	if info, err := os.Lstat(fifo); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("it is %v (%v), expected a pipe", info.Mode(), err)
	}

	// A descriptor that others write, too, is written where it stands.
	log := filepath.Join(folder, "log")
	check(t, os.WriteFile(log, []byte("first\n"), 0o600))
	open, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND, 0)
	check(t, err)
	defer open.Close()
	if _, err := os.Stat("/proc/self/fd"); err == nil {
		check(t, Write("/dev/fd/"+strconv.Itoa(int(open.Fd())), put("second\n")))
		if _, err := open.WriteString("third\n"); err != nil {
			t.Error(err)
		}
		if data, _ := os.ReadFile(log); string(data) != "first\nsecond\nthird\n" {
			t.Errorf("the file has %q, expected three lines", data)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, says := range map[string]string{
		"":                                  "the name is empty",
		folder:                              "is a folder",
		filepath.Join(folder, "new") + "/":  "ends like a folder",
		filepath.Join(folder, "no", "file"): "no such file",
	} {
		if err := Write(name, put("")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, expected one that says %q", name, err, says)
		}
	}
	long := filepath.Join(folder, strings.Repeat("x", 255))
	check(t, Write(long, put("fits")))
	if os.Getuid() != 0 { // root may write it
		file := filepath.Join(folder, "mine")
		check(t, os.WriteFile(file, []byte("kept"), 0o400))
		if err := Write(file, put("new")); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%v, expected that a file may not be written", err)
		}
	}
}
