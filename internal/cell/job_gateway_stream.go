package cell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// ErrGatewayGone is returned by KeepGateway when the stream is gone. Open it again, and read it
// from the start. Deliveries made meanwhile are lost; heartbeats name their jobs.
var ErrGatewayGone = errors.New("gateway stream is gone")

// GatewayDispatch is what an entry of a gateway's stream says about one job.
type GatewayDispatch struct {
	Dispatch
	Node    string
	Session string // session of the node's last heartbeat before the entry; another session drops the entry
}

// OpenGateway makes the stream of the replica's gateway: scripts write only to a stream that
// exists. It lives as long as KeepGateway is called at least every 30 s. Entries of an existing
// stream stay.
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
// ErrGatewayGone, or from Redis.
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

// CloseGateway deletes the stream. From then on nothing is delivered through this gateway.
func (c *Cell) CloseGateway(ctx context.Context, replica string) error {
	if err := validateReplica(replica); err != nil {
		return err
	}
	del := c.client.B().Del().Key(c.layout.Gateway(replica)).Build()
	if err := c.runner.Do(ctx, "close_gateway", del).Error(); err != nil {
		return fmt.Errorf("close stream of gateway %s: %w", replica, err)
	}
	return nil
}

// GatewayDispatches reads the deliveries to all nodes behind the replica's gateway, as Dispatches
// does for one node. after is an entry's ID, and each entry comes with all its jobs. The texts of
// one call share memory: clone those that you keep for long.
func (c *Cell) GatewayDispatches(
	ctx context.Context, replica, after string, block time.Duration, limit int,
) ([]GatewayDispatch, error) {
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

// decodeGatewayDispatch reads a job to begin or to cancel. A job to begin has the fields j ("job
// attempt tenant node session") and s (the spec, empty if it is large). A job to cancel has the
// field c ("job attempt node session").
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
