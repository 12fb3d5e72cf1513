package client

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/loopback"
	"github.com/freeslot/freeslot/internal/wire"
)

// ErrClosed is returned by every call of a closed client, and by the Wait of every handle that had
// no result when the client was closed.
var ErrClosed = errors.New("client is closed")

// Client submits jobs over one connection, which it renews as needed.
type Client struct {
	opts      Options
	urls      []*url.URL
	transport *http.Transport // nil unless the client made it
	log       *zap.Logger
	tracer    tracer

	// ctx is the client's life: Close ends it.
	ctx    context.Context
	cancel context.CancelFunc
	// loops waits for all goroutines of the client.
	loops sync.WaitGroup

	mu sync.Mutex // guards the fields that follow, and all connections, calls and handles
	// current takes new requests; nil if there is no connection.
	current *connection
	// ready is closed when current is set or the client closed. When current is lost, a new channel
	// replaces it.
	ready chan struct{}
	// connections holds the open ones: current, and connections to draining replicas that still
	// have answers to bring.
	connections map[*connection]struct{}
	// jobs holds the accepted jobs that have no result yet.
	jobs map[string]*Handle
	// lost counts, by name, requests without an answer that went with their connections.
	lost   map[string]int
	closed bool
	lastID uint64
	// failure is the reason that there is no connection.
	failure error
}

// Dial connects to a replica: "ws://127.0.0.1:7480", or with the path /v1/ws. Several URLs are
// separated by commas; each is tried once in turn. ctx bounds only the call of Dial. The error
// holds a *freeslot.Error (unauthenticated, permission_denied, overloaded or unavailable), or names
// what is wrong with url or a file of Options.TLS.
func Dial(ctx context.Context, url string, opts Options) (*Client, error) {
	urls, err := parseURLs(url)
	if err != nil {
		return nil, err
	}
	transport, err := opts.transport(urls)
	if err != nil {
		return nil, err
	}
	if opts = opts.withDefaults(); transport != nil {
		opts.HTTPClient = &http.Client{Transport: transport}
	}
	life, cancel := context.WithCancel(context.Background())
	c := &Client{
		opts: opts, urls: urls, transport: transport, log: opts.Logger, tracer: newTracer(opts.TracerProvider),
		ctx: life, cancel: cancel, ready: make(chan struct{}),
		connections: map[*connection]struct{}{}, jobs: map[string]*Handle{}, lost: map[string]int{},
	}
	if plain := loopback.Plain(url); plain != "" && (opts.Token != "" || opts.TokenSource != nil) {
		c.log.Warn(
			"client.plain", zap.String("url", plain), zap.String("reason", "the token goes there in the clear; use wss://"),
		)
	}
	first, err := c.dialAny(ctx)
	if err != nil {
		cancel()
		c.closeIdle()
		return nil, err
	}
	c.loops.Go(func() { c.run(first) })
	return c, nil
}

// dialAny tries each URL once.
func (c *Client) dialAny(ctx context.Context) (*connection, error) {
	var failures error
	for i := range c.urls {
		conn, err := c.connect(ctx, i)
		if err == nil {
			return conn, nil
		}
		failures = errors.Join(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failures
}

// Close ends the connection and waits for the client's goroutines. Calls under way and handles
// without a result fail with ErrClosed; the jobs go on. It takes up to ten seconds if the replica
// does not answer. Only the first call does anything. Close always returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.cancel()
	if c.current == nil {
		close(c.ready)
	}
	open := slices.Collect(maps.Keys(c.connections))
	for _, conn := range open {
		conn.failPending(ErrClosed, false)
	}
	for _, h := range c.jobs {
		h.finish(freeslot.JobStatus{}, ErrClosed)
	}
	c.mu.Unlock()
	for _, conn := range open {
		c.loops.Go(conn.sayGoodbye)
	}
	c.loops.Wait()
	c.closeIdle()
	return nil
}

// closeIdle closes connections of handshakes that were refused.
func (c *Client) closeIdle() {
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

// Submit submits a job and returns when it is accepted. An accepted job may still wait for a free
// slot. While there is no connection, Submit waits for one until ctx ends.
//
// The error holds a *freeslot.Error, or is ErrClosed. With code unavailable the job may have been
// accepted, unless the message has "nothing was sent". If ctx has ended, the error matches its
// cause, too.
func (c *Client) Submit(ctx context.Context, job freeslot.Job) (*Handle, error) {
	if err := job.Validate("job"); err != nil {
		return nil, err
	}
	span := c.tracer.start(ctx, &job)
	answer := c.do(ctx, func() *call { return newSubmit([]jobSpan{span}, job) }, func(id string) []byte {
		return wire.AppendSubmit(nil, id, &job)
	})
	result := answer.submitted[0]
	if result.Err != nil {
		span.end("", freeslot.JobStatus{}, result.Err)
	}
	return result.Handle, result.Err
}

// Run submits a job and waits for its end: Submit, then Handle.Wait.
func (c *Client) Run(ctx context.Context, job freeslot.Job) (freeslot.JobStatus, error) {
	h, err := c.Submit(ctx, job)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	return h.Wait(ctx)
}

// Cancel asks for a job to be cancelled and returns its status: a running job is cancelling, a
// waiting one is cancelled. The handle, if there is one, gets the end. A job that has ended is
// unchanged. The errors are Submit's, and not_found if the tenant has no such job.
func (c *Client) Cancel(ctx context.Context, jobID string) (freeslot.JobStatus, error) {
	for {
		answer := c.do(ctx, newCancel, func(id string) []byte { return wire.AppendCancel(nil, id, jobID) })
		if !answer.broken {
			return answer.status, answer.err
		}
	}
}

// Attach makes this client the one that gets a job's result. A client that waited for the job
// before then does not get it. If the job has ended, Attach returns a handle with its result. If
// this client already waits for the job, Attach returns the existing handle. The errors are
// Cancel's.
func (c *Client) Attach(ctx context.Context, jobID string) (*Handle, error) {
	for {
		c.mu.Lock()
		known := c.jobs[jobID]
		c.mu.Unlock()
		if known != nil {
			return known, nil
		}
		answer := c.do(ctx, func() *call { return newAttach(jobID, nil) }, func(id string) []byte {
			return wire.AppendAttach(nil, id, jobID)
		})
		if !answer.broken {
			return answer.handle, answer.err
		}
	}
}
