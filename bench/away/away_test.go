package away

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers with what it gets until the connection is closed.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		conn.Close()
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l.Addr().String()
}

// TestDelay: no answer comes before its time, many requests wait side by side, and nothing is
// changed or reordered.
func TestDelay(t *testing.T) {
	const delay, requests = 50 * time.Millisecond, 20
	p, err := Open(echo(t), delay)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begin := time.Now()
	for i := range requests {
		if _, err := conn.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, 2*requests)
	if _, err := io.ReadFull(conn, got[:1]); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < delay {
		t.Errorf("the first answer came after %s, expected %s at least", took, delay)
	}
	if _, err := io.ReadFull(conn, got[1:]); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > delay*requests/2 {
		t.Errorf("%d requests took %s: each waited for the one before", requests, took)
	}
	for i := range requests {
		if got[2*i] != byte(i) {
			t.Fatalf("answer %d is %d", i, got[2*i])
		}
	}
}

// TestClose cuts a connection on which a client waits.
func TestClose(t *testing.T) {
	p, err := Open(echo(t), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; err == nil {
		t.Error("an answer came through a closed proxy")
	}
}

// full is a listener of a process that has no file left.
type full struct{ net.Listener }

func (full) Accept() (net.Conn, error) { return nil, syscall.EMFILE }

// TestNoMoreConnections: further connections are refused, and Close returns why.
func TestNoMoreConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(full{l}, &Proxy{to: "nowhere:1"})
	p.loops.Wait()
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
	if err := p.Close(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("closed with %v", err)
	}
}

// TestSilence: what was sent before comes, what is sent after does not, and the connection stands.
func TestSilence(t *testing.T) {
	p, err := Open(echo(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := make([]byte, 1)
	for _, silent := range []bool{false, true} {
		if silent {
			p.Silence()
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		wait := time.Minute
		if silent {
			wait = 50 * time.Millisecond
		}
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(answer); errors.Is(err, os.ErrDeadlineExceeded) != silent {
			t.Errorf("silent %v: the answer is %v", silent, err)
		}
	}
}

// TestLine: bytes come at the line's rate. Bytes of another connection wait for the queue alone.
func TestLine(t *testing.T) {
	const rate, queue, bytes = 8e6, 50 * time.Millisecond, 300_000 // 1 MB/s
	p, err := OpenLine(echo(t), rate, queue)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begin := time.Now()
	go func() { _, _ = conn.Write(make([]byte, bytes)) }() // ends with the connection
	if _, err := io.ReadFull(conn, make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < bytes*time.Microsecond {
		t.Errorf("%d bytes came within %s, expected %s at least", bytes, took, bytes*time.Microsecond)
	}
	l := line{bitsPerSecond: rate, queue: queue}
	last := time.Now()
	for range 20 {
		due := l.due(t.Context(), 10_000)
		if took, wait := due.Sub(last), time.Until(due); took < 9*time.Millisecond || wait > queue+10*time.Millisecond {
			t.Fatalf("10,000 bytes take %s and wait for %s, expected 10ms and at most %s more than that", took, wait, queue)
		}
		last = due
	}
}
