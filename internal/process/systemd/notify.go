// Package systemd tells systemd how a service is: that it is ready, reloads, stops, and lives. Outside of a service
// of Type=notify nothing is told.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Notifier tells one service manager. The nil Notifier tells nobody. It is safe for concurrent use.
type Notifier struct {
	addr *net.UnixAddr
	// watchdog is how often the manager wants to hear that the service lives; 0 is never.
	watchdog time.Duration

	mu     sync.Mutex // guards status, so that the last one told is the last one meant
	status string
}

// New is the Notifier that the environment names: NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. It is nil where
// there is none.
func New(environ []string) *Notifier {
	env := make(map[string]string)
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			env[name] = value
		}
	}
	path := env["NOTIFY_SOCKET"]
	if path == "" {
		return nil
	}
	n := &Notifier{addr: &net.UnixAddr{Name: path, Net: "unixgram"}}
	if pid := env["WATCHDOG_PID"]; pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(env["WATCHDOG_USEC"], 10, 64); err == nil && usec > 0 {
			n.watchdog = time.Duration(usec) * time.Microsecond
		}
	}
	return n
}

// Ready says that the service has started, or that a reload has ended.
func (n *Notifier) Ready() error { return n.tell("READY=1") }

// Stopping says that the service has begun to stop.
func (n *Notifier) Stopping() error { return n.tell("STOPPING=1") }

// Reloading says that the service reads its configuration again. Ready ends it.
func (n *Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the monotonic clock: %w", err)
	}
	return n.tell("RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/int64(time.Microsecond), 10))
}

// Status is a line for `systemctl status`. The same one is told once.
func (n *Notifier) Status(text string) error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if text = strings.ReplaceAll(text, "\n", " "); text == n.status {
		return nil
	}
	if err := n.tell("STATUS=" + text); err != nil {
		return err
	}
	n.status = text
	return nil
}

// Watch tells at half of the time that the manager allows that the service lives, as long as alive says so, until
// ctx ends. alive must not wait. Without a watchdog Watch returns at once.
func (n *Notifier) Watch(ctx context.Context, alive func() bool) {
	if n == nil || n.watchdog == 0 {
		return
	}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	for {
		if alive() {
			_ = n.tell("WATCHDOG=1") // a manager that does not hear it acts on that
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (n *Notifier) tell(state string) (err error) {
	if n == nil {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	return nil
}
