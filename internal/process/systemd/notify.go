// Package systemd notifies systemd that a service is ready, reloads, stops, and lives. Outside a
// service of Type=notify it does nothing.
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

// Notifier notifies one service manager. The nil Notifier does nothing. It is safe for concurrent
// use.
type Notifier struct {
	addr *net.UnixAddr
	// watchdog is the longest time between two signs of life that the manager allows; 0 is no
	// limit.
	watchdog time.Duration

	mu     sync.Mutex // guards status, and keeps the order of its changes
	status string
}

// New makes the Notifier for the variables NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID of the
// environment. It returns nil without a socket.
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

// Ready notifies that the service has started, or that a reload has ended.
func (n *Notifier) Ready() error { return n.send("READY=1") }

// Stopping notifies that the service has begun to stop.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1") }

// Reloading notifies that the service reads its configuration again. Ready ends that.
func (n *Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the monotonic clock: %w", err)
	}
	return n.send("RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/int64(time.Microsecond), 10))
}

// Status sets the line of `systemctl status`. It sends a repeated line only once.
func (n *Notifier) Status(text string) error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if text = strings.ReplaceAll(text, "\n", " "); text == n.status {
		return nil
	}
	if err := n.send("STATUS=" + text); err != nil {
		return err
	}
	n.status = text
	return nil
}

// Watch sends a sign of life twice in the time that the manager allows, while alive returns true,
// until ctx ends. alive must not wait. Without a watchdog Watch returns at once.
func (n *Notifier) Watch(ctx context.Context, alive func() bool) {
	if n == nil || n.watchdog == 0 {
		return
	}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	for {
		if alive() {
			_ = n.send("WATCHDOG=1") // the manager acts if the sign does not come
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (n *Notifier) send(state string) error {
	if n == nil {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, n.addr)
	if err == nil {
		err = conn.SetWriteDeadline(time.Now().Add(time.Second))
		if err == nil {
			_, err = conn.Write([]byte(state))
		}
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
