package main

import (
	"bufio"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// monitorRest is how long MONITOR is read after the load has ended.
const monitorRest = 200 * time.Millisecond

// outOfOrder counts the grants of a window of the fair lock, and those that passed an older ticket.
func outOfOrder(ctx context.Context, redis *system.Redis, s shape, l tool.Length) (grants, passed int) {
	e := newEntrant(ctx, redis, s, setting{Library: ours, Fair: true})
	defer tool.End(e.End)
	// A waiter without a subscription may be passed: by the end of this round all have one.
	e.round(ctx, redis, s, tool.Length{Window: l.Window / 5})
	conn := tool.Must(redis.Monitor())
	defer conn.Close()
	read := make(chan struct{})
	var q queue
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			q.see(lines.Text())
		}
	}()
	err := tool.Try(func() { e.round(ctx, redis, s, l) })
	err = errors.Join(err, conn.SetReadDeadline(time.Now().Add(monitorRest)))
	<-read
	if err == nil && q.grants == 0 {
		err = errors.New("MONITOR showed no grant")
	}
	tool.Check(err)
	return q.grants, q.passed
}

// queue is the order of one lock, by the commands that Redis ran.
type queue struct {
	places         map[string]float64 // acquisition -> place
	grants, passed int
}

// see takes a line of MONITOR:
//
//	1732466190.1 [0 lua] "ZADD" "lock:queue:k0" "1732466190000001" "<process>:<number> <lease> <holder>"
//	1732466190.1 [0 lua] "HSET" "lock:held:k0" "layout" "1" "acquisition" "<process>:<number>" ...
func (q *queue) see(line string) {
	if q.places == nil {
		q.places = make(map[string]float64)
	}
	words, _ := system.MonitorWords(line)
	switch {
	case len(words) < 3:
	case words[0] == "ZADD" && strings.HasPrefix(words[1], "lock:queue") && len(words) == 4:
		q.places[acquisitionOf(words[3])], _ = strconv.ParseFloat(words[2], 64)
	case words[0] == "ZREM" && strings.HasPrefix(words[1], "lock:queue"):
		delete(q.places, acquisitionOf(words[2]))
	case words[0] == "HSET" && len(words) > 6 && words[4] == "acquisition":
		q.grants++
		own, queued := q.places[words[5]]
		for _, place := range q.places {
			if !queued || place < own {
				q.passed++
				return
			}
		}
	}
}

func acquisitionOf(ticket string) string {
	name, _, _ := strings.Cut(ticket, " ")
	return name
}
