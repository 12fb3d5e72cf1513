package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/freeslot/freeslot/client"
)

// clientDriver drives one client.
type clientDriver struct {
	out    *answers
	ctx    context.Context
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu      sync.Mutex // guards the rest
	client  *client.Client
	token   string
	handles map[string]*client.Handle
	aborts  map[int]context.CancelFunc // by the id of the command
}

func newClientDriver(out *answers) *clientDriver {
	ctx, cancel := context.WithCancel(context.Background())
	return &clientDriver{
		out: out, ctx: ctx, cancel: cancel, handles: map[string]*client.Handle{}, aborts: map[int]context.CancelFunc{},
	}
}

// do carries out a command beside the ones under way.
func (d *clientDriver) do(c command) {
	ctx, abort := context.WithCancel(d.ctx)
	d.mu.Lock()
	d.aborts[c.ID] = abort
	d.mu.Unlock()
	d.calls.Go(func() {
		defer abort()
		f, err := d.call(ctx, &c)
		d.out.answer(c.ID, f, err)
	})
}

func (d *clientDriver) call(ctx context.Context, c *command) (fields, error) {
	switch c.Do {
	case "dial":
		return nil, d.dial(ctx, c)
	case "abandon":
		d.mu.Lock()
		defer d.mu.Unlock()
		d.aborts[c.Of]()
		return nil, nil
	case "token":
		d.mu.Lock()
		defer d.mu.Unlock()
		d.token = c.Token
		return nil, nil
	}
	cl := d.current()
	if cl == nil {
		return nil, errors.New("there is no client")
	}
	switch c.Do {
	case "submit":
		h, err := cl.Submit(ctx, c.Job)
		return d.accepted(h), err
	case "batch":
		return d.batch(ctx, cl, c)
	case "wait":
		return d.wait(ctx, c.JobID)
	case "progress":
		return d.progress(ctx, c)
	case "attach":
		h, err := cl.Attach(ctx, c.JobID)
		return d.accepted(h), err
	case "cancel":
		status, err := cl.Cancel(ctx, c.JobID)
		return fields{"job": status}, err
	case "close":
		return nil, cl.Close()
	}
	return nil, fmt.Errorf("there is no command %q", c.Do)
}

func (d *clientDriver) current() *client.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.client
}

func (d *clientDriver) dial(ctx context.Context, c *command) error {
	d.mu.Lock()
	d.token = c.Token
	d.mu.Unlock()
	opts := client.Options{
		MinBackoff: ms(c.MinBackoffMS), MaxBackoff: ms(c.MaxBackoffMS), PingInterval: ms(c.PingIntervalMS),
		PingTimeout: ms(c.PingTimeoutMS), DialTimeout: ms(c.DialTimeoutMS), MaxMessageBytes: c.MaxMessageBytes,
	}
	d.setToken(&opts)
	cl, err := client.Dial(ctx, c.URL, opts)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.client = cl
	return nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// accepted remembers a handle; nil is none.
func (d *clientDriver) accepted(h *client.Handle) fields {
	if h == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles[h.ID()] = h
	f := fields{"job_id": h.ID()}
	if h.Position() > 0 {
		f["position"] = h.Position()
	}
	return f
}

func (d *clientDriver) batch(ctx context.Context, cl *client.Client, c *command) (fields, error) {
	all, err := cl.SubmitBatch(ctx, c.Jobs)
	if err != nil {
		return nil, err
	}
	jobs := make([]fields, len(all))
	for i, one := range all {
		if jobs[i] = d.accepted(one.Handle); one.Err != nil {
			jobs[i] = fields{"error": errorFields(one.Err)}
		}
	}
	return fields{"jobs": jobs}, nil
}

func (d *clientDriver) handle(id string) (*client.Handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.handles[id]
	if h == nil {
		return nil, fmt.Errorf("job %s was neither submitted nor attached to", id)
	}
	return h, nil
}

func (d *clientDriver) wait(ctx context.Context, id string) (fields, error) {
	h, err := d.handle(id)
	if err != nil {
		return nil, err
	}
	status, err := h.Wait(ctx)
	return fields{"job": status}, err
}

func (d *clientDriver) progress(ctx context.Context, c *command) (fields, error) {
	h, err := d.handle(c.JobID)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case p, more := <-h.Progress():
			if !more {
				return fields{"done": true}, nil
			}
			d.out.answer(c.ID, fields{"progress": p}, nil)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// close ends everything.
func (d *clientDriver) close() {
	d.cancel()
	if cl := d.current(); cl != nil {
		_ = cl.Close()
	}
	d.calls.Wait()
}
