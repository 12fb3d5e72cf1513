package script

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const (
	// DefaultReplicationTimeout is how long a call waits for Redis' replicas.
	DefaultReplicationTimeout = time.Second
	// MaxReplicas is the most of Redis' replicas that a call can wait for.
	MaxReplicas = 16

	// replicatedTTL is long, because the key exists only to be written.
	replicatedTTL = 24 * time.Hour
	// replicaSilence is how long a replica may be silent before it counts as gone. A replica reports
	// its position to the master every second.
	replicaSilence = 5 * time.Second
)

// ErrNotReplicated is returned by calls that wait for Redis' replicas, if too few of them confirmed
// in time. The master has the write, and can still lose it.
var ErrNotReplicated = errors.New("too few replicas of redis have confirmed it")

// Acknowledge says how many of Redis' replicas must have a write before it counts. The zero value
// means none: the write counts once Redis' master has it.
type Acknowledge struct {
	// Replicas is at most MaxReplicas.
	Replicas int
	// Timeout is how long a call waits for them. 0 means DefaultReplicationTimeout.
	Timeout time.Duration
}

// Validate returns an error that names the first bad field.
func (a Acknowledge) Validate() error {
	if a.Replicas < 0 || a.Replicas > MaxReplicas {
		return fmt.Errorf("acknowledge_replicas is %d, expected 0 to %d", a.Replicas, MaxReplicas)
	}
	if a.Replicas > 0 && a.Timeout < time.Millisecond {
		return fmt.Errorf("acknowledge_timeout is %s, expected at least 1ms", a.Timeout)
	}
	return nil
}

// ReplicasOnline returns how many replicas keep up with the cell's master, as far as the master
// knows. Errors: from Redis.
func (r *Runner) ReplicasOnline(ctx context.Context) (int, error) {
	text, err := r.replication(ctx)
	n := 0
	for line := range strings.Lines(text) {
		if replicaOnline(strings.TrimSpace(line), replicaSilence) {
			n++
		}
	}
	return n, err
}

// ReplicasBehind returns the addresses of the replicas that the cell's master knows, and that have
// not told it within limit how far they are, or still load its data. Errors: from Redis.
func (r *Runner) ReplicasBehind(ctx context.Context, limit time.Duration) (behind []string, err error) {
	text, err := r.replication(ctx)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if at, ok := replicaAddress(line); ok && !replicaOnline(line, limit) {
			behind = append(behind, at)
		}
	}
	return behind, err
}

// replication returns what the cell's master says of its replicas. In a cluster it asks the master
// that owns the cell's slot.
func (r *Runner) replication(ctx context.Context) (string, error) {
	ask := r.client.B().Info().Section("replication").Build().SetSlot(r.cfg.Layout.Replicated())
	text, err := r.Do(ctx, "replicas", ask).ToString()
	if err != nil {
		return "", fmt.Errorf("read replicas of redis: %w", err)
	}
	return text, nil
}

// replicaAddress returns the address in such a line as replicaOnline reads; false for others.
func replicaAddress(line string) (string, bool) {
	_, values, _ := strings.Cut(line, ":ip=")
	host, values, there := strings.Cut(values, ",port=")
	port, _, ended := strings.Cut(values, ",")
	return net.JoinHostPort(host, port), strings.HasPrefix(line, "slave") && there && ended
}

// replicaOnline reads a line such as slave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=1
func replicaOnline(line string, limit time.Duration) bool {
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
			keepsUp = err == nil && time.Duration(lag)*time.Second <= limit
		}
	}
	return online && keepsUp
}

// CallReplicated is Call for a script whose writes count once Redis' replicas have them. One round
// trip carries EVALSHA, PEXPIRE and WAIT. Errors: ErrNotReplicated, or as Call.
func (r *Runner) CallReplicated(ctx context.Context, s *Script, keys, args []string) rueidis.RedisResult {
	if r.cfg.Acknowledge.Replicas == 0 {
		return r.Call(ctx, s, keys, args)
	}
	ctx, cancel := context.WithTimeout(ctx, r.ConfirmTimeout())
	defer cancel()
	var result rueidis.RedisResult
	err := r.pin(func(on *pinned) error {
		begin := time.Now()
		on.behind = func() []rueidis.Completed { return r.barrier(ctx) }
		result = r.callOn(ctx, on, s, keys, args)
		if err := result.Error(); err != nil {
			return err
		}
		return r.replicated(ctx, on, on.answers, begin)
	})
	if err != nil && result.Error() == nil {
		return rueidis.NewErrorResult(err)
	}
	return result
}

// CallConfirmed is Call for a script that may refuse. Unless refused reports that it did, Redis'
// replicas have the writes of this call, or of an earlier call with the same outcome. Errors: as
// CallReplicated.
func (r *Runner) CallConfirmed(
	ctx context.Context, s *Script, keys, args []string, refused func(rueidis.RedisResult) bool,
) rueidis.RedisResult {
	var result rueidis.RedisResult
	err := r.OneConnection(func(on *Conn) error {
		result = on.Call(ctx, s, keys, args)
		if err := result.Error(); err != nil || refused(result) {
			return err
		}
		return on.Confirm(ctx)
	})
	if err != nil && result.Error() == nil {
		return rueidis.NewErrorResult(err)
	}
	return result
}

// Confirm waits until Redis' replicas have everything that any process wrote to the cell before. It
// returns at once if no replica has to confirm. Errors: ErrNotReplicated.
func (r *Runner) Confirm(ctx context.Context) error {
	return r.OneConnection(func(on *Conn) error { return on.Confirm(ctx) })
}

// Conn is a runner whose calls go to one connection, and so to one server.
type Conn struct {
	runner *Runner
	client rueidis.Client
	pinned *pinned // nil if no replica has to confirm: client is then the shared one
}

// OneConnection runs f with a connection. If that leads to a master that has given the cell's hash
// slot away, f runs once more with a connection to the new master. If no replica has to confirm, f
// gets the shared connections.
func (r *Runner) OneConnection(f func(on *Conn) error) error {
	if r.cfg.Acknowledge.Replicas == 0 {
		return f(&Conn{runner: r, client: r.client})
	}
	return r.pin(func(on *pinned) error { return f(&Conn{runner: r, client: on, pinned: on}) })
}

// Call is [Runner.Call].
func (c *Conn) Call(ctx context.Context, s *Script, keys, args []string) rueidis.RedisResult {
	return c.runner.callOn(ctx, c.client, s, keys, args)
}

// Do is [Runner.Do].
func (c *Conn) Do(ctx context.Context, label string, cmd rueidis.Completed) rueidis.RedisResult {
	return c.runner.doOn(ctx, c.client, label, cmd)
}

// Client returns the client for commands that are not timed, such as blocking ones.
func (c *Conn) Client() rueidis.Client { return c.client }

// Confirm waits until Redis' replicas have everything that the connection read or wrote before.
// Errors: ErrNotReplicated.
func (c *Conn) Confirm(ctx context.Context) error {
	if c.pinned == nil {
		return nil
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.runner.ConfirmTimeout())
	defer cancel()
	return c.runner.replicated(ctx, c.pinned, c.pinned.multi(ctx, c.runner.barrier(ctx)...), begin)
}

// pin runs f with a connection of the pool; see OneConnection.
func (r *Runner) pin(f func(on *pinned) error) error {
	err := r.pinTo(r.client, f)
	var moved *rueidis.RedisError
	if !errors.As(err, &moved) {
		return err
	}
	if to, ok := moved.IsMoved(); ok {
		if node := r.client.Nodes()[to]; node != nil {
			return r.pinTo(node, f)
		}
	}
	return err
}

func (r *Runner) pinTo(client rueidis.Client, f func(on *pinned) error) error {
	conn, release := client.Dedicate()
	on := &pinned{Client: r.client, conn: conn}
	err := f(on)
	if on.broken {
		conn.Close()
	} else {
		release()
	}
	return err
}

// barrier returns a write, and the wait until replicas have it and so everything written before.
// The write must be on this connection: WAIT waits for the connection's last write, and the script
// may have written nothing because an earlier call did. PEXPIRE works even if Redis is out of
// memory.
func (r *Runner) barrier(ctx context.Context) []rueidis.Completed {
	touch := r.client.B().Pexpire().Key(r.cfg.Layout.Replicated()).Milliseconds(replicatedTTL.Milliseconds()).Build()
	return []rueidis.Completed{touch, r.wait(ctx)}
}

func (r *Runner) wait(ctx context.Context) rueidis.Completed {
	timeout := r.cfg.Acknowledge.Timeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end))
	}
	// A timeout of 0 would wait for ever.
	return r.client.B().Wait().Numreplicas(
		int64(r.cfg.Acknowledge.Replicas),
	).Timeout(max(timeout.Milliseconds(), 1)).Build()
}

// replicated handles the answers to a barrier. It leaves the causes out of the error's chain,
// because they concern the wait and not the writes before it.
func (r *Runner) replicated(ctx context.Context, on *pinned, answers []rueidis.RedisResult, begin time.Time) error {
	touched, err := answers[0].AsInt64()
	if err == nil && touched == 0 {
		set := r.client.B().Set().Key(r.cfg.Layout.Replicated()).Value("1").Px(replicatedTTL).Build()
		answers = on.multi(ctx, set, r.wait(ctx))
		err = answers[0].Error()
	}
	have := int64(0)
	if err == nil {
		have, err = answers[1].AsInt64()
	}
	need := r.cfg.Acknowledge.Replicas
	switch {
	case err != nil:
		r.metrics.replicated("failed", begin)
		return fmt.Errorf("%w: %v", ErrNotReplicated, err) //nolint:errorlint // see above
	case have < int64(need):
		r.metrics.replicated("short", begin)
		return fmt.Errorf("%w: %d of %d within %s", ErrNotReplicated, have, need, r.cfg.Acknowledge.Timeout)
	default:
		r.metrics.replicated("confirmed", begin)
		return nil
	}
}

// pinned is a client whose commands go to one connection.
type pinned struct {
	rueidis.Client // builds commands
	conn           rueidis.DedicatedClient
	// broken is true after a command without an answer: the answer can still come.
	broken bool
	// behind returns the commands to send after each command. answers holds their answers.
	behind  func() []rueidis.Completed
	answers []rueidis.RedisResult
}

// Do sends one command.
func (p *pinned) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if p.behind == nil {
		return p.multi(ctx, cmd)[0]
	}
	answers := p.multi(ctx, append([]rueidis.Completed{cmd}, p.behind()...)...)
	p.answers = answers[1:]
	return answers[0]
}

func (p *pinned) multi(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	answers := p.conn.DoMulti(ctx, cmds...)
	for _, a := range answers {
		p.broken = p.broken || a.NonRedisError() != nil
	}
	return answers
}
