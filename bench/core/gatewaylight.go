package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/worker"
)

const (
	lightMode = "core-light"
	// lightTimeout bounds the start of an agent.
	lightTimeout = 10 * time.Second
	// lightBeatTimeout is when a worker would look for another gateway.
	lightBeatTimeout = cell.DefaultHeartbeatLimit / 8
	// lightCallers agents of a process start at a time: more would take the gateways' time from the
	// heartbeats of those that are there.
	lightCallers = 8
	// meanBeat is the time between two heartbeats of an agent, on average: run shortens each interval
	// by up to a tenth.
	meanBeat = worker.DefaultHeartbeatInterval * 19 / 20
	// lightFigures: every so many heartbeats bring figures once, so once a minute.
	lightFigures = int(worker.DefaultMetadataInterval / worker.DefaultHeartbeatInterval)
)

// light says by the real protocol what a worker without jobs says, at the default intervals. 10,000
// whole workers would take more of this machine than the gateways and Redis, which are measured.
type light struct {
	conn    *websocket.Conn
	answers chan *frame.Answer // closed when the connection has ended
	id      uint64
}

// lights are the agents of a process. failed counts the heartbeats without a good answer, ended the
// agents whose connections were lost.
type lights struct {
	failed, ended atomic.Int64
	loops         sync.WaitGroup
}

// runLights answers "ended" and "failed": how many agents and heartbeats have.
func runLights(ctx context.Context, arg []byte, serve func(func([]byte) any)) {
	a := tool.Decode[agents](arg)
	tool.Must(measure.RaiseFiles(fleetFiles))
	options := tool.Must(a.dialOptions())
	var all lights
	life, end := context.WithCancel(ctx)
	defer all.loops.Wait()
	defer end()
	starting, cancel := context.WithTimeout(ctx, fleetStart)
	defer cancel()
	tool.Check(measure.InParallel(lightCallers, a.Count, func(i int) (err error) {
		var l *light
		epoch := cell.NewEpoch()
		for try := int64(1); l == nil && try <= fleetTries; try++ {
			hello := frame.Request{
				Type: frame.TypeHello, Node: benchNodeID(a.First + i), Epoch: epoch, Connection: try, Version: "bench",
			}
			l, err = a.startLight(starting, life, options, a.First+i, &hello, &all)
		}
		if l != nil {
			all.loops.Go(func() { l.run(life, &all) })
		}
		return err
	}))
	serve(func(request []byte) any {
		if tool.Decode[string](request) == "failed" {
			return all.failed.Load()
		}
		return all.ended.Load()
	})
}

func (a *agents) dialOptions() (*websocket.DialOptions, error) {
	transport := &http.Transport{}
	if a.CAFile != "" {
		data, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(data)
	}
	return &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{frame.Protocol},
		HTTPHeader: http.Header{"Authorization": {"Bearer " + a.Token}},
	}, nil
}

// startLight connects to one of the gateways at random, and registers the node.
func (a *agents) startLight(
	ctx, life context.Context, options *websocket.DialOptions, number int, hello *frame.Request, all *lights,
) (_ *light, err error) {
	ctx, cancel := context.WithTimeout(ctx, lightTimeout)
	defer cancel()
	gateways := strings.Split(a.Gateways, ",")
	conn, _, err := websocket.Dial(ctx, gateways[rand.N(len(gateways))]+frame.Path, options)
	if err != nil {
		return nil, err
	}
	l := &light{conn: conn, answers: make(chan *frame.Answer, 1)}
	all.loops.Go(func() { l.read(life) })
	node := benchNode(number)
	node.MaxConcurrency = a.Slots
	for _, say := range []struct {
		request *frame.Request
		answer  frame.Type
	}{
		{hello, frame.TypeWelcome},
		{&frame.Request{Type: frame.TypeRegister, Profile: &node}, frame.TypeRegistered},
	} {
		if err := l.ask(ctx, say.request, say.answer); err != nil {
			_ = conn.CloseNow()
			return nil, fmt.Errorf("node %s: %w", node.ID, err)
		}
	}
	first := frame.Request{Type: frame.TypeHeartbeat, Status: freeslot.StatusOnline, Resources: callsFigures, Now: true}
	if l.ask(ctx, &first, frame.TypeBeat) != nil { // the next one follows after the interval
		all.failed.Add(1)
	}
	return l, nil
}

// ask sends a request and waits for its answer. An agent has one request under way at a time.
func (l *light) ask(ctx context.Context, req *frame.Request, want frame.Type) error {
	if req.Type != frame.TypeHello {
		l.id++
		req.ID = l.id
	}
	text, err := frame.Append(nil, req)
	if err != nil {
		return err
	}
	if err := l.conn.Write(ctx, websocket.MessageText, text); err != nil {
		return err
	}
	for {
		select {
		case a := <-l.answers:
			switch {
			case a == nil:
				return errConnectionEnded
			case a.ID != req.ID && a.ID > 0: // of a heartbeat that was given up
			case a.Type != want:
				return fmt.Errorf("%s was answered by %s: %s", req.Type, a.Type, a.Message)
			default:
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errConnectionEnded = errors.New("the connection has ended")

// read takes messages, and answers pings, until the connection ends.
func (l *light) read(ctx context.Context) {
	defer close(l.answers)
	for {
		_, text, err := l.conn.Read(ctx)
		if err != nil {
			return
		}
		err = frame.DecodeAnswers(text, func(a *frame.Answer) error {
			select {
			case l.answers <- a:
			case <-ctx.Done():
			}
			return nil
		})
		if err != nil {
			return
		}
	}
}

// run sends heartbeats until ctx ends. An agent that has lost its connection does not come back: the
// measurement fails.
func (l *light) run(ctx context.Context, all *lights) {
	defer l.conn.CloseNow() //nolint:errcheck // the process ends
	at := time.Now().Add(rand.N(worker.DefaultHeartbeatInterval))
	for n := 1; measure.SleepUntil(ctx, at) == nil; n++ {
		at = at.Add(worker.DefaultHeartbeatInterval - rand.N(worker.DefaultHeartbeatInterval/10))
		beat := frame.Request{Type: frame.TypeHeartbeat, Status: freeslot.StatusOnline}
		if n%lightFigures == 0 {
			beat.Resources = callsFigures
		}
		asking, cancel := context.WithTimeout(ctx, lightBeatTimeout)
		err := l.ask(asking, &beat, frame.TypeBeat)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errConnectionEnded):
			all.ended.Add(1)
			return
		case err != nil:
			all.failed.Add(1)
		}
	}
}
