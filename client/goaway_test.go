package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
)

type request struct{ Type, ID string }

func read(ctx context.Context, conn *websocket.Conn) (r request, err error) {
	_, frame, err := conn.Read(ctx)
	if err == nil {
		err = json.Unmarshal(frame, &r)
	}
	return r, err
}

// TestAcceptedByLeavingReplica: a replica drains. Its client has attached to its job elsewhere when
// the replica answers a second submit with the same key. The replica then sends that the job went
// elsewhere, but it was this client that took it there.
func TestAcceptedByLeavingReplica(t *testing.T) {
	t.Parallel()
	attached := make(chan struct{})
	say := func(ctx context.Context, conn *websocket.Conn, format string, args ...any) {
		_ = conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...))
	}
	old := talking(t, func(ctx context.Context, conn *websocket.Conn) {
		say(ctx, conn, welcome)
		first, _ := read(ctx, conn)
		say(ctx, conn, `{"type":"accepted","id":%q,"job_id":"0-1"}`, first.ID)
		second, _ := read(ctx, conn)
		say(ctx, conn, `{"type":"goaway","reason":"test"}`)
		<-attached
		say(ctx, conn, `[{"type":"accepted","id":%q,"job_id":"0-1"},{"type":"detached","job_id":"0-1"}]`, second.ID)
	})
	told := make(chan struct{})
	fresh := talking(t, func(ctx context.Context, conn *websocket.Conn) {
		say(ctx, conn, welcome)
		attach, _ := read(ctx, conn)
		say(ctx, conn, `{"type":"status","id":%q,"job":{"job_id":"0-1","state":"running","node":"n1","attempt":1}}`, attach.ID)
		close(attached)
		<-told
		say(ctx, conn, `{"type":"result","job":{"job_id":"0-1","state":"succeeded","node":"n1","attempt":1,"result":7}}`)
	})
	c := dial(t, client.Options{}, old, fresh)
	defer fresh.hangUp()
	defer old.hangUp()
	job := freeslot.Job{Service: "hold", IdempotencyKey: "k"}
	h, err := c.Submit(deadline(t), job)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Submit(deadline(t), job); err != nil {
		t.Fatal(err)
	}
	close(told)
	if s, err := h.Wait(deadline(t)); err != nil || s.State != freeslot.StateSucceeded {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateSucceeded", s, err)
	}
}
