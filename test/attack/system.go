package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/redis/server"
)

const (
	// files is the number of open files that the replica may have, and maxAgents its agents.
	files     = 512
	maxAgents = 200
	patience  = 10 * time.Second
	beatEvery = 2 * time.Second
)

// system is a replica with a redis-server and one node, whose slots are taken.
type system struct {
	redis         *server.Server
	process       *exec.Cmd
	dir           string
	main, gateway string // host:port
	birth         string // of the list vip

	life    context.Context
	endLife context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex // guards held
	held []io.Closer
}

func startSystem(ctx context.Context, scheduler string, lifted bool) (_ *system, err error) {
	s := &system{redis: server.New(server.Config{})}
	s.life, s.endLife = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := s.redis.Start(ctx); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "freeslot-attack-"); err != nil {
		return nil, err
	}
	if s.gateway, err = freeAddress(); err != nil {
		return nil, err
	}
	if err := s.startReplica(scheduler, lifted); err != nil {
		return nil, err
	}
	if err := s.makeList(ctx); err != nil {
		return nil, err
	}
	return s, s.startNode(ctx)
}

// freeAddress returns an address of the loopback that was free a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *system) startReplica(scheduler string, lifted bool) error {
	var tokens, nodes strings.Builder
	for name, role := range map[string]string{"greedy": "client", "victim": "client", "third": "operator"} {
		fmt.Fprintf(&tokens, "- {name: %s, role: %s, tenant: %s, sha256: %s}\n", name, role, name, digest(name))
	}
	for name, pattern := range map[string]string{
		"greedy-node": "greedy-*", "one-node": "one-1", "victim-node": "victim-*",
	} {
		fmt.Fprintf(&nodes, "- {name: %s, nodes: [%q], sha256: %s}\n", name, pattern, digest(name))
	}
	tenants := map[string]any{"greedy": map[string]any{"max_priority": 5}}
	if lifted {
		tenants["greedy"] = map[string]any{"max_kinds": 1024, "max_schedules": 1000}
	}
	config, err := json.Marshal(map[string]any{ // JSON is YAML, too
		"replica_id": "r1", "listen": "127.0.0.1:0", "redis": map[string]any{"url": s.redis.URL()},
		"tokens_file": filepath.Join(s.dir, "tokens.yaml"), "lists": map[string]any{"dir": s.dir},
		"tenants": tenants,
		"gateway": map[string]any{
			"tokens_file": filepath.Join(s.dir, "nodes.yaml"), "listen": s.gateway, "max_agents": maxAgents,
		},
	})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"tokens.yaml": []byte(tokens.String()), "nodes.yaml": []byte(nodes.String()), "config.yaml": config,
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	s.process = exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" serve --config "$1"`, files),
		scheduler, filepath.Join(s.dir, "config.yaml"))
	logs, err := s.process.StderrPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	return s.awaitStart(logs)
}

// awaitStart reads the address from the log, which it goes on to read until the end.
func (s *system) awaitStart(logs io.Reader) error {
	lines := bufio.NewScanner(logs)
	lines.Buffer(nil, 1<<20)
	var last string
	for lines.Scan() {
		last = lines.Text()
		var event struct{ Event, Address string }
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Event == "replica.started" {
			s.main = event.Address
			s.running.Go(func() {
				for lines.Scan() {
				}
			})
			return nil
		}
	}
	return fmt.Errorf("the replica did not start: %s", last)
}

// makeList makes the list vip.
func (s *system) makeList(ctx context.Context) error {
	if _, err := s.ask(ctx, "third", http.MethodPut, "/v1/lists/vip", `{}`); err != nil {
		return err
	}
	text, err := s.ask(ctx, "third", http.MethodPost, "/v1/list-marks", `{"lists":{"vip":{}}}`)
	if err != nil {
		return err
	}
	var marks struct {
		Lists map[string]struct{ Birth string }
	}
	if err := json.Unmarshal(text, &marks); err != nil || marks.Lists["vip"].Birth == "" {
		return fmt.Errorf("the list has no birth: %s", text)
	}
	s.birth = marks.Lists["vip"].Birth
	return nil
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// startNode connects the one node, and gives it a job that does not end.
func (s *system) startNode(ctx context.Context) error {
	conn, err := s.agent(ctx, "victim-node", "victim-0")
	if err != nil {
		return err
	}
	register := `{"type":"register","id":1,"profile":{"max_concurrency":1,"installed_services":[{"name":"tts"}]}}`
	beat := `{"type":"heartbeat","id":2,"status":"online","now":true}`
	for _, text := range []string{register, beat} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			return err
		}
		if _, _, err := conn.Read(ctx); err != nil {
			return err
		}
	}
	s.running.Go(func() {
		for s.life.Err() == nil {
			if _, _, err := conn.Read(s.life); err != nil {
				return
			}
		}
	})
	s.running.Go(func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for conn.Write(s.life, websocket.MessageText, []byte(beat)) == nil {
			select {
			case <-tick.C:
			case <-s.life.Done():
			}
		}
	})
	for deadline := time.Now().Add(patience); ; {
		err := s.call(ctx, "victim", http.MethodPost, "/v1/jobs", `{"service":"tts"}`)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// agent connects as an agent, and takes the welcome.
func (s *system) agent(ctx context.Context, token, node string) (*websocket.Conn, error) {
	conn, err := s.handshake(ctx, token)
	if err != nil {
		return nil, err
	}
	hello, err := frame.Append(
		nil, &frame.Request{Type: frame.TypeHello, Node: node, Epoch: "e1", Connection: time.Now().UnixMicro() % (1 << 40)},
	)
	if err == nil {
		err = conn.Write(ctx, websocket.MessageText, hello)
	}
	var answer []byte
	if err == nil {
		_, answer, err = conn.Read(ctx)
	}
	if err == nil && !bytes.Contains(answer, []byte(`"type":"welcome"`)) {
		err = fmt.Errorf("agent %s: %s", node, answer)
	}
	if err != nil {
		_ = conn.CloseNow()
		return nil, err
	}
	return conn, nil
}

func (s *system) handshake(ctx context.Context, token string) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+s.gateway+frame.Path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{frame.Protocol},
		HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	})
	return conn, err
}

func (s *system) call(ctx context.Context, token, method, path, body string) error {
	_, err := s.ask(ctx, token, method, path, body)
	return err
}

// ask makes a call on a connection of its own, as a client that has just started does.
func (s *system) ask(ctx context.Context, token, method, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.main+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Close = true
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s %.200s", method, path, resp.Status, text)
	}
	return text, err
}

// hold keeps a connection open until the end.
func (s *system) hold(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, c)
}

func (s *system) stop() {
	s.endLife()
	s.mu.Lock()
	for _, c := range s.held {
		_ = c.Close()
	}
	s.mu.Unlock()
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Kill()
		s.running.Wait()
		_ = s.process.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := errors.Join(s.redis.Stop(ctx), os.RemoveAll(s.dir)); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
	}
}
