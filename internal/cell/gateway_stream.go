package cell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// ErrGatewayGone is returned by KeepGateway when the stream is gone. Open it again, and read it
// from the start. Deliveries of the time between are lost; heartbeats name their jobs.
var ErrGatewayGone = errors.New("gateway stream is gone")

// GatewayDispatch is what an entry of a gateway's stream says of one job.
type GatewayDispatch struct {
	Dispatch
	Node    string
	Session string // that the node's last heartbeat before the entry came by; others drop it
}

// OpenGateway makes the stream of the replica's gateway: scripts write only to one that exists. It
// lives on while KeepGateway is called more often than every 30 s. Entries that were there stay.
func (c *Cell) OpenGateway(ctx context.Context, replica string) error {
	if err := validateReplica(replica); err != nil {
		return err
	}
	if err := c.openStream(ctx, "open_gateway", c.layout.Gateway(replica)); err != nil {
		return fmt.Errorf("open stream of gateway %s: %w", replica, err)
	}
	return c.KeepGateway(ctx, replica, "")
}

// KeepGateway renews the stream's TTL and drops entries before trimTo ("" drops none). Errors:
// ErrGatewayGone, else what Redis said.
func (c *Cell) KeepGateway(ctx context.Context, replica, trimTo string) error {
	if err := validateReplica(replica); err != nil {
		return err
	}
	there, err := c.keepStream(ctx, "keep_gateway", c.layout.Gateway(replica), trimTo)
	if err != nil {
		return fmt.Errorf("keep stream of gateway %s: %w", replica, err)
	}
	if !there {
		return ErrGatewayGone
	}
	return nil
}

// CloseGateway deletes the stream: from now on nothing is delivered by this gateway.
func (c *Cell) CloseGateway(ctx context.Context, replica string) error {
	if err := validateReplica(replica); err != nil {
		return err
	}
	if err := c.runner.Do(ctx, "close_gateway", c.client.B().Del().Key(c.layout.Gateway(replica)).Build()).Error(); err != nil {
		return fmt.Errorf("close stream of gateway %s: %w", replica, err)
	}
	return nil
}

// GatewayDispatches reads the deliveries to all nodes behind the replica's gateway, as Dispatches
// does for one node. after is an entry's ID, and an entry comes with all its jobs. The texts of one
// call share memory: clone what is kept for long.
func (c *Cell) GatewayDispatches(ctx context.Context, replica, after string, block time.Duration, limit int) ([]GatewayDispatch, error) {
	if err := validateReplica(replica); err != nil {
		return nil, err
	}
	for {
		entries, err := c.read(ctx, c.layout.Gateway(replica), after, block, limit)
		if err != nil {
			return nil, fmt.Errorf("read stream of gateway %s: %w", replica, err)
		}
		out := make([]GatewayDispatch, 0, len(entries))
		for _, e := range entries {
			for one := range parts(e.FieldValues) {
				if one.get("open") != "" {
					continue
				}
				d, err := decodeGatewayDispatch(e.ID, one)
				if err != nil {
					c.log.Warn("dispatch.unreadable", zap.String("gateway", replica), zap.String("entry", e.ID), zap.Error(err))
					continue
				}
				out = append(out, d)
			}
		}
		if len(out) > 0 || len(entries) == 0 {
			return out, nil
		}
		after = entries[len(entries)-1].ID // as in Dispatches
	}
}

// decodeGatewayDispatch reads a job that begins or one to cancel. The first has the fields j ("job
// attempt tenant node session") and s (the spec, empty when large), the second has c ("job attempt
// node session").
func decodeGatewayDispatch(id string, f fields) (d GatewayDispatch, err error) {
	d.ID = id
	if head := f.get("c"); head != "" {
		d.Cancel = true
		err = readParts(head, &d.Attempt.Job, &d.Attempt.N, &d.Node, &d.Session)
	} else {
		err = readParts(f.get("j"), &d.Attempt.Job, &d.Attempt.N, &d.Tenant, &d.Node, &d.Session)
	}
	if err == nil {
		err = ValidateJobID("job_id", d.Attempt.Job)
	}
	if spec := f.get("s"); err == nil && spec != "" {
		d.Job, err = decodeSpec([]byte(spec))
	}
	return d, err
}
