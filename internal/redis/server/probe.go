package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	probeInterval = 5 * time.Millisecond
	probeTimeout  = time.Second
)

// errNotReady is returned when a server answers, but is not the child or not ready.
var errNotReady = errors.New("not ready")

// probe returns nil if the server at addr answers PING and is the process pid. A server that asks
// for a password first does not reveal its pid; then it is enough that it listens.
func probe(ctx context.Context, addr string, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	switch pong, err := r.ReadString('\n'); {
	case err != nil:
		return err
	case strings.HasPrefix(pong, "-NOAUTH"):
		return nil
	case pong != "+PONG\r\n":
		return fmt.Errorf("%w: %s", errNotReady, strings.TrimSpace(pong))
	}
	if _, err := io.WriteString(conn, "INFO server\r\n"); err != nil {
		return err
	}
	return matchPID(r, pid)
}

func matchPID(r *bufio.Reader, pid int) error {
	head, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil || size < 0 {
		return fmt.Errorf("%w: INFO: %s", errNotReady, strings.TrimSpace(head))
	}
	info := make([]byte, size)
	if _, err := io.ReadFull(r, info); err != nil {
		return err
	}
	for line := range strings.Lines(string(info)) {
		if got, ok := strings.CutPrefix(strings.TrimSpace(line), "process_id:"); ok && got == strconv.Itoa(pid) {
			return nil
		}
	}
	return fmt.Errorf("%w: another server answers at this address", errNotReady)
}
