package e2e

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNoWayToRedis: an agent that knows no Redis, on a network that leads to none, registers, runs
// a thousand jobs and leaves. What it can reach is one address of a gateway.
func TestNoWayToRedis(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.serveNodes()
	r := s.startReplica("r1")
	var a *process
	var svc *service
	inOwnNetwork(t, func() {
		if conn, err := net.DialTimeout("tcp", s.redis.Addrs()[0], time.Second); err == nil {
			_ = conn.Close()
			t.Fatal("Redis can be reached")
		}
		svc = newService(t, nil)
		a = s.startAgent(nodeSpec{id: "node-a", slots: 16, gateway: "ws://" + relay(t, r.addr)}, svc)
	})
	r.awaitNodes(1)
	const jobs = 1000
	waitOurs(t, submitOurs(t, r.ws(), anyJobs(jobs)))
	for i := range jobs {
		if svc.seen[i] != 1 {
			t.Errorf("job %d was executed %d times", i, svc.seen[i])
		}
	}
	a.stop()
	if left := s.mentions("node-a"); len(left) > 0 {
		t.Errorf("after its stop there is still %v", left)
	}
	s.checkNoSlotsInUse()
}

// inOwnNetwork calls f in a network that has only a loopback of its own: for the listeners that f
// opens, the connections that it dials itself, and the processes that it starts.
func inOwnNetwork(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread() // the network is the thread's; other goroutines run on other threads
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		t.Skipf("this machine gives the test no network of its own, which needs root on Linux: %v", err)
	}
	defer func() {
		if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Errorf("back to the network of the machine: %v", err)
			return // the thread stays locked, and ends with the test
		}
		runtime.UnlockOSThread()
	}()
	if err := raiseLoopback(); err != nil {
		t.Fatal(err)
	}
	f()
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		lo.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
	}
	return errors.Join(err, unix.Close(fd))
}

// relay listens in the caller's network and leads to an address in that of the machine.
func relay(t *testing.T, to string) (addr string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := new(net.Dialer).DialContext(t.Context(), "tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(out, in)
					_ = out.Close()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return l.Addr().String()
}
