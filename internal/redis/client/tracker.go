package client

import (
	"errors"
	"time"

	"github.com/redis/rueidis"
)

// Tracker opens a client that calls onInvalidations for every write to a key that begins with
// prefix on one server. It is for one Receive, which keeps the connection up, and nothing else:
// each further connection would get the same notices.
//
// addr is host:port of the server, with credentials, TLS and database of c. Empty means the server,
// or the sentinels' master, of c.URL. The client dials at once. The error is [rueidis.ErrNoCache]
// for a server that cannot track.
//
// onInvalidations gets keys, or nil if all keys may have changed: after a flush and when the
// connection breaks. It runs on the connection's reader: it must not wait, nor use the client.
func Tracker(c Config, addr, prefix string, onInvalidations func([]rueidis.RedisMessage)) (rueidis.Client, error) {
	return c.open(func(opt *rueidis.ClientOption) {
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
		c.quieten(opt)
		opt.ReadBufferEachConn, opt.WriteBufferEachConn = trackerBuffer, agentBuffer
		opt.RingScaleEachConn = agentRing
		opt.RetryDelay = trackerRetryDelay
	})
}

// trackerBuffer has room for some thousand keys of one notice.
const trackerBuffer = 64 << 10

// trackerRetryDelay gives up if a server has come back that cannot track or does not allow it:
// retries every 2 ms would not change that.
func trackerRetryDelay(attempts int, cmd rueidis.Completed, err error) time.Duration {
	if errors.Is(err, rueidis.ErrNoCache) {
		return -1
	}
	return retryDelay(attempts, cmd, err)
}
