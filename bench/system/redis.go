package system

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// AOFOff is a Redis without an append-only file. Other values are those of appendfsync.
const AOFOff = "off"

// redisClients is how many connections a server must take: a node has one of its own.
const redisClients = "15000"

// Redis is a server with a client for its own figures.
type Redis struct {
	*redisserver.Server
	Client rueidis.Client
}

// StartRedis starts a server that keeps its data in this way; the caller stops it. args are more of
// its arguments.
func StartRedis(ctx context.Context, aof string, args ...string) (*Redis, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	cfg := redisserver.Config{ExtraArgs: append([]string{"--maxclients", redisClients}, args...)}
	if aof != AOFOff {
		cfg.AppendOnly, cfg.AppendFsync = true, aof
	}
	r := &Redis{Server: redisserver.New(cfg)}
	if err := r.Start(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.Client, err = redisclient.Commands(redisclient.Config{URL: r.URL(), Name: "bench-stats"}); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

// Stop closes the client and ends the server.
func (r *Redis) Stop() error {
	if r.Client != nil {
		r.Client.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	return r.Server.Stop(ctx)
}

// Monitor has Redis show each command that it runs, a line each. The caller closes the connection.
func (r *Redis) Monitor() (net.Conn, error) {
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// MonitorWords reads the command of a line such as
//
//	1732466190.1 [0 lua] "ZADD" "lock:alive" "12" "p"
func MonitorWords(line string) (words []string, byScript bool) {
	from, command, _ := strings.Cut(line, ` "`)
	return strings.Split(strings.TrimSuffix(command, `"`), `" "`), strings.HasSuffix(from, "lua]")
}
