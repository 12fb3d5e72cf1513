package redistest

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

//go:embed testdata/clock.c
var clockSource []byte

// NewWithClock starts a server whose wall clock runs ahead of the machine's. set takes by how much,
// in whole seconds; it is 0 at first. It needs a C compiler, as the race detector does.
func NewWithClock(tb testing.TB, options ...Option) (s *Server, set func(ahead time.Duration)) {
	tb.Helper()
	dir := tb.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	set = func(ahead time.Duration) {
		tb.Helper()
		// The server has the file mapped: written over, it is seen at once.
		file, err := os.OpenFile(at("clock"), os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = file.Write(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)))
			_ = file.Close()
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	set(0)
	server := "${" + BinaryEnv + ":-$(command -v redis-server || command -v valkey-server)}"
	script := fmt.Sprintf(
		"#!/bin/sh\nFREESLOT_CLOCK='%s' LD_PRELOAD='%s' exec \"%s\" \"$@\"\n", at("clock"), at("clock.so"), server,
	)
	for name, content := range map[string][]byte{"clock.c": clockSource, "server": []byte(script)} {
		if err := os.WriteFile(at(name), content, 0o700); err != nil { //nolint:gosec // the script is run
			tb.Fatal(err)
		}
	}
	if out, err := exec.Command(
		"cc", "-shared", "-fPIC", "-o", at("clock.so"), at("clock.c"),
	).CombinedOutput(); err != nil {
		tb.Fatalf("cc: %v\n%s", err, out)
	}
	return New(tb, append(options, func(c *redisserver.Config) { c.Binary = at("server") })...), set
}
