package client

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// This file handles a master that becomes a replica while connections to it stay open. The server
// closes none of them, and refuses every write as READONLY. The address may lead to the new master
// meanwhile, but only a new connection finds that out. So the first refusal makes a client dial
// once more. If that connection leads to a master, all connections to the address are closed, and
// rueidis dials them again as after any break. Among them are subscriptions, which never see a
// refusal themselves. If the address still leads to a replica, nothing is closed, because replicas
// answer reads. A client of role Commands also asks for the server's role now and then, because its
// process may only read.

const (
	// firstLookPause is the longest time between the first two looks for a new master. Each further
	// pause is up to twice as long, at most longestLookPause: an address may lead to a replica for
	// long, and thousands of agents look.
	firstLookPause   = time.Second
	longestLookPause = 15 * time.Second
	// roleInterval is how often a client asks for the role of its server.
	roleInterval = 5 * time.Second
)

// demotionCodes are answers of a server that is not a master. A server that becomes a replica ends
// blocked calls as UNBLOCKED.
var demotionCodes = []string{"READONLY", "MASTERDOWN", "UNBLOCKED"}

func isDemoted(err error) bool {
	answer, ok := errors.AsType[*rueidis.RedisError](err)
	if !ok {
		return false
	}
	code, _, _ := strings.Cut(answer.Error(), " ")
	return slices.Contains(demotionCodes, code)
}

// links are the open connections of a process to one server, or to sentinels and their master. The
// clients of one Topology share them. The zero value is ready for use.
type links struct {
	mu    sync.Mutex
	open  map[*link]struct{} // guarded by mu
	next  time.Time          // no look begins before it; guarded by mu
	pause time.Duration      // the last pause without its jitter; guarded by mu
}

// link is an open connection.
type link struct {
	net.Conn
	of *links
	// quiet is true if the connection pings seldom.
	quiet bool
	heard atomic.Int64 // when a quiet connection last read something, in nanoseconds of Unix time
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.quiet && n > 0 {
		l.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

func (l *link) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

type dialFunc func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// dialer records the connections that next makes.
func (l *links) dialer(next dialFunc) dialFunc {
	return func(ctx context.Context, addr string, dialer *net.Dialer, conf *tls.Config) (net.Conn, error) {
		conn, err := next(ctx, addr, dialer, conf)
		if err != nil {
			return nil, err
		}
		made := &link{Conn: conn, of: l, quiet: dialer.KeepAlive == quietKeepAlive}
		made.heard.Store(time.Now().UnixNano())
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open == nil {
			l.open = make(map[*link]struct{})
		}
		l.open[made] = struct{}{}
		return made, nil
	}
}

// begin returns the connections for a look; ok is false if it is too soon after the last one.
func (l *links) begin() (open []*link, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next) {
		return nil, false
	}
	if now.Sub(l.next) > longestLookPause { // no refusal for a while, so this is another demotion
		l.pause = 0
	}
	l.pause = min(max(2*l.pause, firstLookPause), longestLookPause)
	l.next = now.Add(l.pause/2 + rand.N(l.pause/2))
	return slices.Collect(maps.Keys(l.open)), true
}

// silent closes the quiet connections that have heard nothing since a call went out that the server
// did not answer in time.
func (l *links) silent() {
	l.mu.Lock()
	open := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	sent := time.Now().Add(-replicaSilence).UnixNano()
	for _, one := range open {
		if one.quiet && one.heard.Load() < sent {
			_ = one.Close()
		}
	}
}

// found makes the pauses short again, because a look has found a master.
func (l *links) found() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pause = 0
	if soon := time.Now().Add(firstLookPause); soon.Before(l.next) {
		l.next = soon
	}
}

// watched is a client that looks for a new master if its server refuses a call as a replica does.
type watched struct {
	rueidis.Client
	links *links
	// probe holds the options of the connection by which it looks.
	probe rueidis.ClientOption

	mu     sync.Mutex
	closed bool // guarded by mu; no look begins after it
	looks  sync.WaitGroup
	life   context.Context // ended by Close
	end    context.CancelFunc
}

// newWatched opens a client with opt whose connections are among the links.
func newWatched(opt rueidis.ClientOption, l *links) (rueidis.Client, error) {
	w := &watched{links: l, probe: opt}
	w.life, w.end = context.WithCancel(context.Background())
	w.probe.DisableCache, w.probe.ClientTrackingOptions, w.probe.OnInvalidations = true, nil, nil
	w.probe.PipelineMultiplex, w.probe.Sentinel.TopologyRefreshInterval = -1, 0
	w.probe.ReadBufferEachConn, w.probe.WriteBufferEachConn = agentBuffer, agentBuffer
	w.probe.RingScaleEachConn = agentRing
	w.probe.ConnWriteTimeout = replicaSilence
	opt.DialCtxFn = l.dialer(opt.DialCtxFn)
	client, err := newClient(opt)
	if err != nil {
		w.end()
		return nil, err
	}
	w.Client = client
	return w, nil
}

func (w *watched) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	result := w.Client.Do(ctx, cmd)
	w.see(result)
	return result
}

func (w *watched) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	results := w.Client.DoMulti(ctx, multi...)
	w.see(results...)
	return results
}

func (w *watched) Dedicated(fn func(rueidis.DedicatedClient) error) error {
	return w.Client.Dedicated(func(c rueidis.DedicatedClient) error { return fn(&watchedConn{c, w}) })
}

func (w *watched) Dedicate() (rueidis.DedicatedClient, func()) {
	c, release := w.Client.Dedicate()
	return &watchedConn{c, w}, release
}

// Close waits for a look that is under way.
func (w *watched) Close() {
	w.mu.Lock()
	w.closed = true
	w.end()
	w.mu.Unlock()
	w.looks.Wait()
	w.Client.Close()
}

// watchedConn is one connection of a watched client.
type watchedConn struct {
	rueidis.DedicatedClient
	of *watched
}

func (c *watchedConn) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	result := c.DedicatedClient.Do(ctx, cmd)
	c.of.see(result)
	return result
}

func (c *watchedConn) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	results := c.DedicatedClient.DoMulti(ctx, multi...)
	c.of.see(results...)
	return results
}

func (w *watched) see(results ...rueidis.RedisResult) {
	for _, result := range results {
		switch err := result.Error(); {
		case err == nil:
		case isDemoted(err):
			w.beginLook()
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // not a caller's deadline, which is of its context
			w.links.silent()
			return
		}
	}
}

func (w *watched) beginLook() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if open, ok := w.links.begin(); ok {
		w.looks.Go(func() { w.poll(open) })
	}
}

// askRoles asks for the server's role until Close.
func (w *watched) askRoles() {
	tick := time.NewTicker(roleInterval)
	defer tick.Stop()
	for {
		select {
		case <-w.life.Done():
			return
		case <-tick.C:
		}
		switch role, err := roleOf(w.life, w.Client); {
		case IsDenied(err):
			return
		case role == "slave":
			w.beginLook()
		}
	}
}

// poll closes the connections if a new one leads to a master. A server that keeps its role to
// itself counts as a master, because there is no other way to find out. The next looks at it come
// more and more seldom.
func (w *watched) poll(open []*link) {
	client, err := newClient(w.probe) // sentinels lead to a master or nowhere
	if err != nil {
		return
	}
	defer client.Close()
	switch role, err := roleOf(w.life, client); {
	case role == "master":
		w.links.found()
	case !IsDenied(err):
		return
	}
	for _, l := range open {
		_ = l.Close()
	}
}

func roleOf(ctx context.Context, client rueidis.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, err := client.Do(ctx, client.B().Role().Build()).ToArray()
	if err != nil || len(answer) == 0 {
		return "", err
	}
	return answer[0].ToString()
}
