// Command devredis is a stand-in for redis-server, with which "scheduler dev" runs on machines that
// have none. It keeps nothing, and is for trying out only.
//
//	devredis HOST:PORT
//
// It prints its address once it serves, and ends when its standard input does: so it ends with the
// program that started it. The exit code is 1 if it cannot listen.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "devredis: expected one argument, HOST:PORT")
		os.Exit(2)
	}
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // without this TTLs do not expire
	if err := m.StartAddr(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(m.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	m.Close()
}
