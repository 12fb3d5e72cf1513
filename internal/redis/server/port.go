package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Ports are picked below the range from which the kernel takes the source ports of outgoing
// connections (32768 and up on Linux, 49152 and up on BSD). Inside that range a client that dials a
// missing server can get the same port, connect to itself, and keep the server from coming back.
const (
	lowestPort  = 10240
	highestPort = 32767
)

const portTries = 100

// FreePort returns a TCP port on 127.0.0.1 on which nothing listens at the moment. It does not
// reserve the port, so another process may take it first.
func FreePort() (int, error) {
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if checkPort(port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port among %d tries between %d and %d", portTries, lowestPort, highestPort)
}

// checkPort returns ErrPortTaken when something listens on the port.
func checkPort(port int) error {
	l, err := net.Listen("tcp", loopback(port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return portTaken(port)
	}
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l.Close()
}

func portTaken(port int) error {
	return fmt.Errorf("%w: something else listens on 127.0.0.1:%d; stop it, or choose another port (0 picks a free one)",
		ErrPortTaken, port)
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
