package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/client"
)

const (
	heldNode = "held"
	// statePoll is how often the node is looked at.
	statePoll = 100 * time.Millisecond
)

func runInterpreter(ctx context.Context, b *tool.Bench, _ tool.Length) {
	// Nodes are silent after 8 s without a heartbeat, the default.
	hold := tool.Sized(b, 30*time.Second, 10*time.Second)
	p := programs(ctx, b, "python")
	b.Say("A handler holds its interpreter for %s, on a node with a heartbeat every 3 s and a limit of 8 s, the defaults. "+
		"A loop in Python gives way to other threads now and then. A call in C that keeps the GIL does not, so its handler is "+
		"in a process.", hold)
	b.Say("GET /v1/nodes/{id}?checked=true each %s meanwhile, and how old the last heartbeat was then.", statePoll)
	t := result.NewTable("Handler", "held [s]", "looks", "not online or silent", "oldest heartbeat [s]", "attempts")
	for _, h := range []struct{ name, service string }{
		{"a loop in Python, in a thread", "hold-loop"},
		{"a call in C that keeps the GIL, in a process", "hold-call"},
	} {
		w := watch(ctx, p, h.service, hold)
		t.Add(h.name, w.held.Seconds(), w.looks, w.away, w.oldest.Seconds(), w.attempts)
		what := fmt.Sprintf("%s for %s: looks at which the node was not online", h.name, hold)
		b.Target(what, result.Number, result.Exactly, 0, float64(w.away))
		b.Note("of %d", w.looks)
		b.Target(h.name+": attempts until the job succeeded", result.Number, result.Exactly, 1, float64(w.attempts))
	}
	b.Result.Tables = []result.Table{t}
}

// watched is what was seen of a node while its handler held the interpreter.
type watched struct {
	held, oldest          time.Duration
	looks, away, attempts int
}

func watch(ctx context.Context, p *system.Programs, service string, hold time.Duration) (w watched) {
	s := tool.Must(system.Start(ctx, p, system.Shape{
		Program: "python", LoadProgram: system.Freeslot, AOF: system.AOFOff, Schedulers: 1, Gateway: true,
		Worker: "-node " + heldNode,
	}))
	defer tool.End(s.Stop)
	ctx, cancel := context.WithTimeout(ctx, 2*hold+2*measure.StartLimit)
	defer cancel()
	address := s.Schedulers[0].Address
	c := tool.Must(client.Dial(ctx, "ws://"+address, client.Options{}))
	defer tool.End(c.Close)
	job := freeslot.Job{Service: service, Payload: strconv.AppendFloat(nil, hold.Seconds(), 'f', -1, 64)}
	handle := tool.Must(c.Submit(ctx, job))
	var status freeslot.JobStatus
	var failed error
	ended := make(chan struct{})
	go func() { // ends with the job, or with ctx
		defer close(ended)
		status, failed = handle.Wait(ctx)
	}()
	tick := time.NewTicker(statePoll)
	defer tick.Stop()
	for over := false; !over; {
		state := look(ctx, address, heldNode)
		w.looks++
		if state.Status != "online" || state.Silent {
			w.away++
		}
		w.oldest = max(w.oldest, time.Since(time.UnixMilli(state.LastHeartbeatMS)))
		select {
		case <-tick.C:
		case <-ended:
			over = true
		}
	}
	tool.Check(failed)
	if status.State != freeslot.StateSucceeded {
		tool.Check(fmt.Errorf("the job of %s is %s: %+v", service, status.State, *cmp.Or(status.Error, new(freeslot.JobError))))
	}
	w.held, w.attempts = time.Since(tool.Must(load.ParseStamp(status.Result))), status.Attempt
	return w
}

// nodeState is what is read of GET /v1/nodes/{id}.
type nodeState struct {
	Status          string `json:"status"`
	Silent          bool   `json:"silent"`
	LastHeartbeatMS int64  `json:"last_heartbeat_ms"`
}

func look(ctx context.Context, address, node string) (state nodeState) {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	url := "http://" + address + "/v1/nodes/" + node + "?checked=true"
	request := tool.Must(http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody))
	request.Close = true
	response := tool.Must(http.DefaultClient.Do(request))
	defer tool.End(response.Body.Close)
	if response.StatusCode != http.StatusOK {
		return nodeState{Status: response.Status}
	}
	tool.Check(json.NewDecoder(response.Body).Decode(&state))
	return state
}
