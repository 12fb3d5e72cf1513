package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/bench/tool"
)

// protocol is the subprotocol of live updates.
const protocol = "freeslot.console.v1"

// maxFrame is more than any frame has.
const maxFrame = 8 << 20

// viewers are connections as those of pages, which want the same topics.
type viewers struct {
	conns   []*websocket.Conn
	reading sync.WaitGroup
	// bytes and frames have come so far. lost counts connections that the replica has ended.
	bytes, frames, lost atomic.Int64
}

// watch opens count connections that want the topics. The caller closes them.
func watch(ctx context.Context, address string, count int, topics ...string) *viewers {
	v := new(viewers)
	err := tool.Try(func() {
		for range count {
			v.open(ctx, address, topics)
		}
	})
	if err != nil {
		tool.Check(errors.Join(err, v.close()))
	}
	return v
}

func (v *viewers) open(ctx context.Context, address string, topics []string) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+address+"/console/live", &websocket.DialOptions{Subprotocols: []string{protocol}})
	tool.Check(err)
	conn.SetReadLimit(maxFrame)
	v.conns = append(v.conns, conn)
	tool.Check(conn.Write(ctx, websocket.MessageText, tool.Must(json.Marshal(map[string][]string{"want": topics}))))
	v.reading.Go(func() {
		for {
			_, data, err := conn.Read(context.Background())
			if err != nil {
				v.lost.Add(1)
				return
			}
			v.bytes.Add(int64(len(data)))
			v.frames.Add(1)
		}
	})
}

// close ends the connections, and fails if the replica has ended one before.
func (v *viewers) close() error {
	lost := v.lost.Load()
	for _, conn := range v.conns {
		_ = conn.CloseNow()
	}
	v.reading.Wait()
	if lost > 0 {
		return fmt.Errorf("the replica ended %d of %d viewers", lost, len(v.conns))
	}
	return nil
}

// call returns the answer to a request, and how long it took.
func call(ctx context.Context, method, url, body string) (answer []byte, took time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	begin := time.Now()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, 0, err
	}
	answer, err = io.ReadAll(resp.Body)
	took = time.Since(begin)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, 0, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, 0, fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, bytes.TrimSpace(answer))
	}
	return answer, took, nil
}
