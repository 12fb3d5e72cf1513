package cell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

const (
	// DefaultReplicationTimeout is how long a call waits for Redis' replicas.
	DefaultReplicationTimeout = time.Second
	// MaxReplicas is the most of Redis' replicas that can be waited for.
	MaxReplicas = 16

	// replicatedTTL is far off: the key only gives a write something to be about.
	replicatedTTL = 24 * time.Hour
	// replicaSilence is for how long a replica that says nothing counts as there. It
	// tells the master of its position every second.
	replicaSilence = 5
)

// ErrNotReplicated is returned by calls that wait for Redis' replicas when too few of
// them confirmed in time: the master has what was written, and may still lose it.
var ErrNotReplicated = errors.New("too few replicas of redis have confirmed it")

// Acknowledge says who must have a job before it counts as accepted, and its end before
// it is told. The zero value is: Redis' master alone.
type Acknowledge struct {
	// Replicas is how many of Redis' replicas must have it too, up to MaxReplicas; 0 for none.
	Replicas int
	// Timeout is how long a call waits for them. 0 means DefaultReplicationTimeout.
	Timeout time.Duration
}

func (a Acknowledge) validate() error {
	if a.Replicas < 0 || a.Replicas > MaxReplicas {
		return fmt.Errorf("acknowledge_replicas is %d, expected 0 to %d", a.Replicas, MaxReplicas)
	}
	if a.Replicas > 0 && a.Timeout < time.Millisecond {
		return fmt.Errorf("acknowledge_timeout is %s, expected at least 1ms", a.Timeout)
	}
	return nil
}

// callTimeout bounds a call that may wait for replicas.
func (c Config) callTimeout() time.Duration {
	if c.Acknowledge.Replicas == 0 {
		return c.CallTimeout
	}
	return c.CallTimeout + c.Acknowledge.Timeout
}

// AcknowledgeReplicas is how many of Redis' replicas must have a job before it counts as
// accepted; 0 when none has to.
func (c *Cell) AcknowledgeReplicas() int { return c.cfg.Acknowledge.Replicas }

// ReplicasOnline is how many replicas the cell's master has that keep up with it, as far as
// it knows. Errors: what Redis said.
func (c *Cell) ReplicasOnline(ctx context.Context) (int, error) {
	// In a cluster, of the master that owns the cell's slot.
	ask := c.client.B().Info().Section("replication").Build().SetSlot(c.layout.Replicated())
	text, err := c.do(ctx, "replicas", ask).ToString()
	if err != nil {
		return 0, fmt.Errorf("read replicas of redis: %w", err)
	}
	n := 0
	for line := range strings.Lines(text) {
		if replicaOnline(strings.TrimSpace(line)) {
			n++
		}
	}
	return n, nil
}

// replicaOnline reads a line such as slave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=1
func replicaOnline(line string) bool {
	name, values, ok := strings.Cut(line, ":")
	number, isReplica := strings.CutPrefix(name, "slave")
	if _, err := strconv.Atoi(number); !ok || !isReplica || err != nil {
		return false
	}
	online, keepsUp := false, true
	for part := range strings.SplitSeq(values, ",") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "state":
			online = value == "online"
		case "lag":
			lag, err := strconv.Atoi(value)
			keepsUp = err == nil && lag <= replicaSilence
		}
	}
	return online && keepsUp
}

// execKept is exec for a script whose writes must be at the replicas before it counts.
// One round trip carries the script and the wait for all of its items.
func (c *Cell) execKept(ctx context.Context, name string, script *script, keys, args []string) rueidis.RedisResult {
	if c.cfg.Acknowledge.Replicas == 0 {
		return c.exec(ctx, name, script, keys, args)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.callTimeout())
	defer cancel()
	var result rueidis.RedisResult
	err := c.pin(func(on *pinned) error {
		begin := time.Now()
		on.behind = func() []rueidis.Completed { return c.barrier(ctx) }
		result = c.execOn(ctx, on, name, script, keys, args)
		if err := result.Error(); err != nil {
			return err
		}
		return c.replicated(ctx, on, on.said, begin)
	})
	if err != nil && result.Error() == nil {
		return rueidis.NewErrorResult(err)
	}
	return result
}

// execTold is exec for a script that an operator waits for. Where it is not refused it is told once Redis' replicas have
// what it has written, or what an earlier call of the same had.
func (c *Cell) execTold(ctx context.Context, name string, script *script, keys, args []string, refused func(rueidis.RedisResult) bool) rueidis.RedisResult {
	var result rueidis.RedisResult
	err := c.onOne(func(on rueidis.Client, confirm func(context.Context) error) error {
		result = c.execOn(ctx, on, name, script, keys, args)
		if err := result.Error(); err != nil || refused(result) {
			return err
		}
		return confirm(ctx)
	})
	if err != nil && result.Error() == nil {
		return rueidis.NewErrorResult(err)
	}
	return result
}

// isZero is refused of scripts that return how much they did.
func isZero(r rueidis.RedisResult) bool {
	n, err := r.AsInt64()
	return err == nil && n == 0
}

// Confirm returns nil once Redis' replicas have all that was written to the cell before, by
// whomever; without replicas to wait for at once. Errors: ErrNotReplicated.
func (c *Cell) Confirm(ctx context.Context) error {
	return c.onOne(func(_ rueidis.Client, confirm func(context.Context) error) error { return confirm(ctx) })
}

// onOne runs f with a client whose commands go to one connection, hence to one server, and
// with confirm, which returns nil once the replicas have all that was read or written
// there. Without replicas to wait for it is the common client, and confirm does nothing.
func (c *Cell) onOne(f func(on rueidis.Client, confirm func(context.Context) error) error) error {
	if c.cfg.Acknowledge.Replicas == 0 {
		return f(c.client, func(context.Context) error { return nil })
	}
	return c.pin(func(on *pinned) error {
		return f(on, func(ctx context.Context) error {
			begin := time.Now()
			ctx, cancel := context.WithTimeout(ctx, c.cfg.callTimeout())
			defer cancel()
			return c.replicated(ctx, on, on.multi(ctx, c.barrier(ctx)...), begin)
		})
	})
}

// told is what read says of a job. An end is told once it cannot be lost any more: it would
// be followed by another.
func (c *Cell) told(ctx context.Context, read func(on rueidis.Client) (freeslot.JobStatus, error)) (status freeslot.JobStatus, err error) {
	err = c.onOne(func(on rueidis.Client, confirm func(context.Context) error) (err error) {
		if status, err = read(on); err == nil && status.State.Terminal() {
			err = confirm(ctx)
		}
		return err
	})
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	return status, nil
}

// safe are the replies that may be told: all of them, or those before the first end that
// is not confirmed.
func safe(ctx context.Context, replies []Reply, confirm func(context.Context) error) ([]Reply, error) {
	first := slices.IndexFunc(replies, func(r Reply) bool { return r.Partial || r.Status.State.Terminal() })
	if first < 0 {
		return replies, nil
	}
	err := confirm(ctx)
	switch {
	case err == nil:
		return replies, nil
	case first > 0 && errors.Is(err, ErrNotReplicated):
		return replies[:first], nil
	default:
		return nil, err
	}
}

// pin runs f with a connection of the pool. Where it turns out to be one to a master that
// has given the cell's slot away, f runs once more with one to the new master.
func (c *Cell) pin(f func(on *pinned) error) error {
	err := c.pinTo(c.client, f)
	var moved *rueidis.RedisError
	if !errors.As(err, &moved) {
		return err
	}
	if to, ok := moved.IsMoved(); ok {
		if node := c.client.Nodes()[to]; node != nil {
			return c.pinTo(node, f)
		}
	}
	return err
}

func (c *Cell) pinTo(client rueidis.Client, f func(on *pinned) error) error {
	conn, release := client.Dedicate()
	on := &pinned{Client: c.client, conn: conn}
	err := f(on)
	if on.broken {
		conn.Close()
	} else {
		release()
	}
	return err
}

// barrier is a write, and the wait for replicas to have it and with it all that was
// written before. It has to be a write of this connection, because WAIT looks no further
// back than to that, and the script before may have found all done by an earlier call. It
// is one that Redis takes also when it is out of memory.
func (c *Cell) barrier(ctx context.Context) []rueidis.Completed {
	touch := c.client.B().Pexpire().Key(c.layout.Replicated()).Milliseconds(replicatedTTL.Milliseconds()).Build()
	return []rueidis.Completed{touch, c.wait(ctx)}
}

func (c *Cell) wait(ctx context.Context) rueidis.Completed {
	timeout := c.cfg.Acknowledge.Timeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end))
	}
	// WAIT 0 would wait for ever.
	return c.client.B().Wait().Numreplicas(int64(c.cfg.Acknowledge.Replicas)).Timeout(max(timeout.Milliseconds(), 1)).Build()
}

// replicated takes the answers to a barrier. The causes are no part of the error's chain: a
// refusal by Redis is one of the wait, and not of what was written before.
func (c *Cell) replicated(ctx context.Context, on *pinned, said []rueidis.RedisResult, begin time.Time) error {
	touched, err := said[0].AsInt64()
	if err == nil && touched == 0 {
		set := c.client.B().Set().Key(c.layout.Replicated()).Value("1").Px(replicatedTTL).Build()
		said = on.multi(ctx, set, c.wait(ctx))
		err = said[0].Error()
	}
	have := int64(0)
	if err == nil {
		have, err = said[1].AsInt64()
	}
	need := c.cfg.Acknowledge.Replicas
	switch {
	case err != nil:
		c.metrics.replicated("failed", begin)
		return fmt.Errorf("%w: %v", ErrNotReplicated, err) //nolint:errorlint // see above
	case have < int64(need):
		c.metrics.replicated("short", begin)
		return fmt.Errorf("%w: %d of %d within %s", ErrNotReplicated, have, need, c.cfg.Acknowledge.Timeout)
	default:
		c.metrics.replicated("confirmed", begin)
		return nil
	}
}

// pinned is a client whose commands go to one connection.
type pinned struct {
	rueidis.Client // builds commands
	conn           rueidis.DedicatedClient
	// broken is true after a command without an answer, which may still come.
	broken bool
	// behind makes what is sent with each command, and said has the answers to it.
	behind func() []rueidis.Completed
	said   []rueidis.RedisResult
}

// Do sends one command.
func (p *pinned) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if p.behind == nil {
		return p.multi(ctx, cmd)[0]
	}
	answers := p.multi(ctx, append([]rueidis.Completed{cmd}, p.behind()...)...)
	p.said = answers[1:]
	return answers[0]
}

func (p *pinned) multi(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	answers := p.conn.DoMulti(ctx, cmds...)
	for _, a := range answers {
		p.broken = p.broken || a.NonRedisError() != nil
	}
	return answers
}
