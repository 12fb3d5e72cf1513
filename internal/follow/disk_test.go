package follow

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newDisk(t *testing.T) (*Disk[string], *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return &Disk[string]{
		Dir: filepath.Join(t.TempDir(), "made"), Prefix: "p", Feature: "feature", Noun: "thing", Every: time.Millisecond,
		Log: zap.New(core), Same: func(a, b string) bool { return a == b },
		Encode: func(to io.Writer, name, state string) error {
			if state == "" {
				return errors.New("nothing to write")
			}
			_, err := io.WriteString(to, name+"="+state)
			return err
		},
	}, logs
}

func (d *Disk[T]) content(name string) (got string, ok bool) {
	ok = d.Read(name, func(data []byte) error {
		got = string(data)
		return nil
	})
	return got, ok
}

// TestDisk: the newest state of each log is written, and the last ones when Run ends.
func TestDisk(t *testing.T) {
	t.Parallel()
	d, logs := newDisk(t)
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { d.Run(ctx) })
	defer loop.Wait()
	defer cancel()
	if got, ok := d.content("a"); ok {
		t.Errorf("file of a: %q before it was written, expected none", got)
	}
	d.Changed("a", "1")
	d.Changed("a", "2")
	waittest.Until(t, "the file of a", func() bool { got, _ := d.content("a"); return got == "a=2" })
	first, err := os.Stat(d.file("a"))
	if err != nil {
		t.Fatal(err)
	}
	d.Changed("a", "2")
	d.Changed("b", "1")
	waittest.Until(t, "the file of b", func() bool { got, _ := d.content("b"); return got == "b=1" })
	if second, err := os.Stat(d.file("a")); err != nil || !os.SameFile(first, second) {
		t.Errorf("the file of a was written anew (%v), expected none for the same state", err)
	}
	d.Changed("a", "3")
	cancel()
	loop.Wait()
	if got, ok := d.content("a"); !ok || got != "a=3" {
		t.Errorf("the file of a after the end: %q, %t, expected a=3", got, ok)
	}
	other := &Disk[string]{Dir: d.Dir, Prefix: "q", Feature: d.Feature, Log: d.Log}
	if got, ok := other.content("a"); ok {
		t.Errorf("under another prefix a is %q, expected no file", got)
	}
	files, err := os.ReadDir(d.Dir)
	if err != nil || len(files) != 2 || logs.Len() != 0 {
		t.Errorf("%d files (%v), logged %v, expected 2 and nothing", len(files), err, logs.All())
	}
}

// TestDiskErrors: what cannot be written or read is logged and leaves no file behind.
func TestDiskErrors(t *testing.T) {
	t.Parallel()
	d, logs := newDisk(t)
	if err := d.write("a", ""); err == nil {
		t.Error("an encoder's error was lost, expected it")
	}
	if files, err := os.ReadDir(d.Dir); err != nil || len(files) != 0 {
		t.Errorf("files %v, %v, expected none", files, err)
	}
	if err := d.write("a", "1"); err != nil {
		t.Fatal(err)
	}
	if d.Read("a", func([]byte) error { return errors.New("damaged") }) {
		t.Error("a file that does not decode was read, expected it to be ignored")
	}
	if err := os.Truncate(d.file("a"), fileLimit+1); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.content("a"); ok {
		t.Error("a file that is too long was read, expected it to be ignored")
	}
	var got []string
	for _, entry := range logs.All() {
		got = append(got, entry.Message+" "+entry.ContextMap()["thing"].(string))
	}
	if want := []string{"feature.snapshot_ignored a", "feature.snapshot_ignored a"}; !slices.Equal(got, want) {
		t.Errorf("logged %v, expected %v", got, want)
	}
}
