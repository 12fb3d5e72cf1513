package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
)

// The targets of an agent.
const (
	idleCPU      = 0.3 // percent of a core
	idleResident = 25  // MiB
	idleCommands = 0.5 // a second
)

// agentProgram is a nodeagent as a process of its own.
type agentProgram struct {
	*measure.Process
	node string
}

// startAgent runs the product's program against Redis, with these settings besides.
func startAgent(program, redisURL, node string, settings ...string) (*agentProgram, error) {
	args := []string{"--redis-url=" + redisURL, "--node-id=" + node, "--log-level=warn"}
	for _, s := range settings {
		args = append(args, "--set="+s)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = measure.PlainEnv()
	p, err := measure.StartProcess("nodeagent", cmd)
	if err != nil {
		return nil, err
	}
	return &agentProgram{p, node}, nil
}

// awaitNode waits until the node has said that it lives.
func (s *server) awaitNode(ctx context.Context, p *agentProgram) error {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	for {
		at, err := s.lastBeat(ctx, p.node)
		if err == nil && at > 0 {
			return nil
		}
		select {
		case <-p.Done:
			return p.Exited()
		default:
		}
		if measure.SleepUntil(ctx, time.Now().Add(readyPoll)) != nil {
			return fmt.Errorf("node %s does not beat: %w", p.node, errors.Join(ctx.Err(), err))
		}
	}
}

// runAgentIdle measures an agent that has nothing to do.
func runAgentIdle(ctx context.Context, b *bench) (err error) {
	window, settle := sized(b, 2*time.Minute, 500*time.Millisecond), sized(b, 20*time.Second, 100*time.Millisecond)
	b.say("The nodeagent program with its default settings and one service that runs a command, beside one replica; nothing is submitted. %s after the node is there, for %s.", settle, window)
	b.say("CPU: user and system time by /proc. Resident: VmRSS, the highest of a reading a second. Commands: the lines of MONITOR that come from the agent's connections and from no script.")
	program, err := measure.BuildProgram(ctx, b.root, b.folder, "nodeagent")
	if err != nil {
		return err
	}
	replica, err := measure.BuildScheduler(ctx, b.root, b.folder)
	if err != nil {
		return err
	}
	s, err := b.startRedis(ctx, noAOF)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r, err := startScheduler(replica, s.URL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Stop()) }()
	if _, err := r.ready(ctx); err != nil {
		return err
	}
	p, err := startAgent(program, s.URL(), "idle", "services=[{name: noop, command: {argv: [cat]}}]")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := s.awaitNode(ctx, p); err != nil {
		return err
	}
	if err := measure.SleepUntil(ctx, time.Now().Add(settle)); err != nil {
		return err
	}
	m, err := openMonitor(ctx, s, "freeslot-agent-idle")
	if err != nil {
		return err
	}
	before, err := measure.CPUSeconds(p.Cmd.Process.Pid)
	if err != nil {
		return errors.Join(err, m.close())
	}
	highest, begin := 0.0, time.Now()
	for at := begin; at.Before(begin.Add(window)); {
		at = at.Add(min(time.Second, window))
		if err := measure.SleepUntil(ctx, at); err != nil {
			return errors.Join(err, m.close())
		}
		mib, err := residentOf(p.Cmd.Process.Pid)
		if err != nil {
			return errors.Join(err, m.close())
		}
		highest = max(highest, mib)
	}
	took := time.Since(begin).Seconds()
	after, err := measure.CPUSeconds(p.Cmd.Process.Pid)
	if err := errors.Join(err, m.close()); err != nil {
		return err
	}
	cpu, commands := (after-before)/took*100, float64(m.count())/took
	b.result.Tables = []result.Table{{First: "Agent", Columns: []result.Column{
		{Name: "of a core", Unit: result.Percent}, {Name: "resident", Unit: result.MiB}, {Name: "commands", Unit: result.PerSecond},
	}, Rows: []result.Row{{Name: "idle: " + m.words(), Values: result.Values(rounded(cpu), rounded(highest), rounded(commands))}}}}
	b.target("idle agent: of a core", result.Percent, result.AtMost, idleCPU, cpu)
	b.target("idle agent: resident", result.MiB, result.AtMost, idleResident, highest)
	b.target("idle agent: commands to Redis", result.PerSecond, result.AtMost, idleCommands, commands)
	return nil
}

// monitor counts the commands that come from the connections of one client.
type monitor struct {
	conn   net.Conn
	from   map[string]bool // addresses
	closed atomic.Bool
	done   sync.WaitGroup
	err    error // set before done

	mu       sync.Mutex // guards what follows
	commands map[string]int
}

// openMonitor counts from now on what the connections of this name send.
func openMonitor(ctx context.Context, s *server, name string) (*monitor, error) {
	m := &monitor{from: make(map[string]bool), commands: make(map[string]int)}
	list, err := s.client.Do(ctx, s.client.B().Arbitrary("CLIENT", "LIST").Build()).ToString()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		fields := make(map[string]string)
		for _, f := range strings.Fields(line) {
			k, v, _ := strings.Cut(f, "=")
			fields[k] = v
		}
		if fields["name"] == name {
			m.from[fields["addr"]] = true
		}
	}
	if len(m.from) == 0 {
		return nil, fmt.Errorf("nobody is connected as %s", name)
	}
	if m.conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr()); err != nil {
		return nil, err
	}
	if _, err := m.conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, errors.Join(err, m.conn.Close())
	}
	m.done.Go(m.read)
	return m, nil
}

// read takes lines such as +1339518083.107412 [0 127.0.0.1:60866] "xread" "block".
func (m *monitor) read() {
	lines := bufio.NewReaderSize(m.conn, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if !m.closed.Load() {
				m.err = err
			}
			return
		}
		_, rest, _ := strings.Cut(line, "[")
		source, rest, _ := strings.Cut(rest, "] \"")
		_, addr, _ := strings.Cut(source, " ")
		command, _, _ := strings.Cut(rest, "\"")
		if m.from[addr] {
			m.mu.Lock()
			m.commands[strings.ToLower(command)]++
			m.mu.Unlock()
		}
	}
}

func (m *monitor) close() error {
	m.closed.Store(true)
	err := m.conn.Close()
	m.done.Wait()
	return errors.Join(err, m.err)
}

// count is how many there were, after close.
func (m *monitor) count() int {
	sum := 0
	for _, n := range m.commands {
		sum += n
	}
	return sum
}

// words says which there were, after close.
func (m *monitor) words() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m.commands)) {
		parts = append(parts, fmt.Sprintf("%d %s", m.commands[name], name))
	}
	return strings.Join(parts, ", ")
}
