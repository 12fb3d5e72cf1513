package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/worker"
)

// workerDriver drives one worker. Its handlers return at the command finish.
type workerDriver struct {
	out   *answers
	calls sync.WaitGroup
	// over is closed at the end of the input: handlers then return by themselves.
	over chan struct{}

	mu      sync.Mutex // guards the rest
	worker  *worker.Worker
	running map[string]*handling // by attempt
}

// handling is one call of a handler.
type handling struct {
	job    *worker.Job
	finish chan command // holds the command that ends it
}

func newWorkerDriver(out *answers) *workerDriver {
	return &workerDriver{out: out, over: make(chan struct{}), running: map[string]*handling{}}
}

func (d *workerDriver) do(c command) {
	switch c.Do {
	case "start":
		d.calls.Go(func() { d.out.answer(c.ID, nil, d.start(&c)) })
	case "stop":
		d.mu.Lock()
		w := d.worker
		d.mu.Unlock()
		d.calls.Go(func() { _ = w.Stop(context.Background()) }) // the one who waits for Done tells the error
		d.out.answer(c.ID, nil, nil)
	default:
		d.out.answer(c.ID, nil, d.tell(&c))
	}
}

func (d *workerDriver) start(c *command) error {
	w, err := worker.New(worker.Config{
		Gateway: c.Gateway, Token: c.Token, TokenFile: c.TokenFile,
		Node:              freeslot.Node{ID: c.Node, MaxConcurrency: c.Slots, Services: c.Services},
		HeartbeatInterval: ms(c.HeartbeatMS), StopTimeout: ms(c.StopTimeoutMS), Collectors: []worker.Collection{},
	})
	if err != nil {
		return err
	}
	for _, service := range c.Services {
		w.Handle(service.Name, d.handle)
	}
	d.mu.Lock()
	d.worker = w
	d.mu.Unlock()
	if err := w.Start(context.Background()); err != nil {
		return err
	}
	d.calls.Go(func() {
		<-w.Done()
		ended := fields{"event": "stopped"}
		if err := w.Err(); err != nil {
			ended["error"] = errorFields(err)
		} else if err := w.Stop(context.Background()); err != nil {
			ended["error"] = errorFields(err)
		}
		d.out.write(ended)
	})
	return nil
}

func (d *workerDriver) handle(ctx context.Context, job *worker.Job) (any, error) {
	attempt := fmt.Sprintf("%s:%d", job.ID, job.Attempt)
	h := &handling{job: job, finish: make(chan command, 1)}
	d.mu.Lock()
	d.running[attempt] = h
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.running, attempt)
	}()
	began := fields{
		"event": "job", "attempt": attempt, "job_id": job.ID, "number": job.Attempt, "tenant": job.Tenant,
		"service": job.Service,
	}
	if job.Payload != nil {
		began["payload"] = job.Payload
	}
	d.out.write(began)
	stopped := ctx.Done()
	for {
		select {
		case <-stopped:
			stopped = nil
			d.out.write(fields{"event": "cancelled", "attempt": attempt})
		case c := <-h.finish:
			return returnOf(&c)
		case <-d.over:
			return nil, errors.New("the driver ends")
		}
	}
}

// returnOf is what a handler returns.
func returnOf(c *command) (any, error) {
	e := c.Error
	switch {
	case e == nil:
		return c.Result, nil
	case e.Retryable && e.RetryDelayMS > 0:
		return nil, worker.RetryAfter(&e.JobError, ms(e.RetryDelayMS))
	case e.Retryable:
		return nil, worker.Retryable(&e.JobError)
	default:
		return nil, &e.JobError
	}
}

// tell carries out a command for a running handler.
func (d *workerDriver) tell(c *command) error {
	d.mu.Lock()
	h := d.running[c.Attempt]
	d.mu.Unlock()
	if h == nil {
		return fmt.Errorf("attempt %q does not run", c.Attempt)
	}
	switch c.Do {
	case "progress":
		return h.job.Progress(json.RawMessage(c.Value))
	case "finish":
		h.finish <- *c
		return nil
	}
	return fmt.Errorf("there is no command %q", c.Do)
}

// close ends everything.
func (d *workerDriver) close() {
	close(d.over)
	d.mu.Lock()
	w := d.worker
	d.mu.Unlock()
	if w != nil {
		hurried, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.Stop(hurried)
	}
	d.calls.Wait()
}
