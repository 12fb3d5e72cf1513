package client

import (
	"errors"
	"time"

	"github.com/redis/rueidis"
)

// Tracker opens a client that is told, through onInvalidations, of every write to a
// key that begins with prefix on one server. It is for one Receive, which keeps the
// connection up, and nothing else: each further connection would be told too.
//
// addr is host:port of the server, with credentials, TLS and database of c; empty
// means the server, or the sentinels' master, that c.URL names. The client dials at
// once. A server that cannot track is refused with [rueidis.ErrNoCache].
//
// onInvalidations gets keys, or nil when all keys may have changed: after a flush
// and when the connection breaks. It runs on the connection's reader: it must not
// wait, nor use the client.
func Tracker(c Config, addr, prefix string, onInvalidations func([]rueidis.RedisMessage)) (rueidis.Client, error) {
	opt, err := c.option()
	if err != nil {
		return nil, err
	}
	if addr != "" {
		opt.InitAddress = []string{addr}
		opt.Sentinel = rueidis.SentinelOption{}
	}
	opt.ForceSingleClient = true
	opt.DisableCache = false
	opt.ClientTrackingOptions = []string{"BCAST", "PREFIX", prefix}
	opt.OnInvalidations = onInvalidations
	opt.ConnWriteTimeout = replicaSilence
	opt.Dialer.KeepAlive = replicaKeepAlive
	opt.PipelineMultiplex = -1
	opt.ReadBufferEachConn, opt.WriteBufferEachConn = trackerBuffer, agentBuffer
	opt.RingScaleEachConn = agentRing
	opt.RetryDelay = trackerRetryDelay
	return newClient(opt)
}

// trackerBuffer holds some thousand keys of one notice.
const trackerBuffer = 64 << 10

// trackerRetryDelay gives up where a server has come back that does not track, or
// does not allow it: trying again every 2 ms would not change that.
func trackerRetryDelay(attempts int, cmd rueidis.Completed, err error) time.Duration {
	if errors.Is(err, rueidis.ErrNoCache) {
		return -1
	}
	return retryDelay(attempts, cmd, err)
}
