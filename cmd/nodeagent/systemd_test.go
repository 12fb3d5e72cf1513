package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestSystemd: the agent notifies systemd when its node is registered, that it lives, when it
// reloads its configuration, and when it stops.
func TestSystemd(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	hear := func(want string) {
		t.Helper()
		var buf [512]byte
		for {
			if err := conn.SetReadDeadline(time.Now().Add(waittest.Limit)); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(buf[:])
			if err != nil {
				t.Fatalf("%s is never sent: %v", want, err)
			}
			if strings.HasPrefix(string(buf[:n]), want) {
				return
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reload := make(chan os.Signal, 1)
	var out output
	ended := make(chan int, 1)
	args := append(strings.Fields(example), "--redis-url", redis.URL(), "--set=redis.key_prefix="+redis.Prefix(t))
	go func() {
		ended <- run(args, &environment{
			ctx: ctx, hurry: t.Context(), out: &out, err: &out, reload: reload,
			environ: []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=20000", "WATCHDOG_PID=" + strconv.Itoa(os.Getpid())},
		})
	}()
	hear("STATUS=node node-1")
	hear("READY=1")
	hear("WATCHDOG=1")
	reload <- syscall.SIGHUP
	hear("RELOADING=1\nMONOTONIC_USEC=")
	hear("READY=1")
	stop()
	hear("STOPPING=1")
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}
