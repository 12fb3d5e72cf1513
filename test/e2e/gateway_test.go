package e2e

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// TestGatewayEnds takes away the replica by which nodes are connected, without a word, in good order,
// or for a while: the nodes go to the other replica with the jobs that they run. No job is lost, and
// none runs twice.
func TestGatewayEnds(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "drained": syscall.SIGTERM, "frozen": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.serveNodes()
			replicas := s.startReplicas(2, 0, "FREESLOT_DRAIN_TIMEOUT="+drainLimit.String())
			gate := make(chan struct{})
			const nodes, slots, jobs = 4, 8, 96
			var services []*service
			for i := range nodes {
				n := nodeSpec{id: fmt.Sprintf("node-%d", i), slots: slots}
				if i%2 == 0 {
					n.gateway = doors(replicas...)
				}
				services = append(services, newService(t, gate))
				s.startAgent(n, services[i])
			}
			for _, r := range replicas {
				r.awaitNodes(nodes)
			}
			via, err := replicas[0].via("node-0")
			if err != nil || via == "" {
				t.Fatalf("node-0 is connected by %q: %v", via, err)
			}
			lost, stays := replicas[0], replicas[1]
			if via == stays.id {
				lost, stays = stays, lost
			}
			ours := submitOurs(t, stays.ws(), anyJobs(jobs)) // three times as many as slots
			for _, svc := range services {
				svc.awaitUse(slots)
			}
			lost.signal(sig)
			if sig != syscall.SIGSTOP {
				lost.wait()
			}
			close(gate)
			waitOurs(t, ours)
			if sig == syscall.SIGSTOP {
				lost.signal(syscall.SIGCONT)
				eventually(t, lost.idle)
				waitOurs(t, submitOurs(t, lost.ws(), anyJobs(jobs + 8)[jobs:]))
			}
			seen := make(map[int]int)
			for i, svc := range services {
				if svc.most != slots {
					t.Errorf("node-%d ran %d jobs at once, it has %d slots", i, svc.most, slots)
				}
				for job, n := range svc.seen {
					seen[job] += n
				}
			}
			for job := range jobs {
				if seen[job] != 1 {
					t.Errorf("job %d was executed %d times", job, seen[job])
				}
			}
			for i := range nodes {
				want := ""
				if i%2 == 0 {
					want = stays.id
				}
				id := fmt.Sprintf("node-%d", i)
				eventually(t, func() error {
					if via, err := stays.via(id); err != nil || via != want {
						return fmt.Errorf("%s is connected by %q, expected %q: %s", id, via, want, fmt.Sprint(err))
					}
					return nil
				})
			}
			eventually(t, stays.idle)
			s.checkNoSlotsInUse()
		})
	}
}

// TestNodeMovesToGatewayAndBack: a restart is all that a node needs to change between Redis and a
// gateway.
func TestNodeMovesToGatewayAndBack(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.serveNodes()
	r := s.startReplica("r1")
	svc := newService(t, nil)
	for i, gateway := range []string{"", doors(r), ""} {
		a := s.startAgent(nodeSpec{id: "node-a", slots: 2, gateway: gateway}, svc)
		eventually(t, func() error { return r.status("node-a", freeslot.StatusOnline) })
		waitOurs(t, submitOurs(t, r.ws(), anyJobs(4)))
		want := ""
		if gateway != "" {
			want = r.id
		}
		if via, err := r.via("node-a"); err != nil || via != want {
			t.Errorf("start %d: the node is connected by %q, expected %q: %v", i, via, want, err)
		}
		a.stop()
		r.awaitNodes(0)
	}
	if left := s.mentions("node-a"); len(left) > 0 {
		t.Errorf("after its stop there is still %v", left)
	}
}

// TestGatewayTLS: with an address of its own a gateway speaks TLS, and lets in only agents that have a
// certificate beside the token.
func TestGatewayTLS(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.serveNodes()
	ca := newAuthority(t)
	cert, key := ca.sign("127.0.0.1")
	port, err := redisserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	s.gateway["listen"] = addr
	s.gateway["tls"] = map[string]any{"cert_file": cert, "key_file": key, "client_ca_file": ca.file}
	r := s.startReplica("r1")

	agentCert, agentKey := ca.sign("node-a")
	svc := newService(t, nil)
	config := map[string]any{
		"gateway": "wss://" + addr, "token_file": s.token, "node": map[string]any{"id": "node-a"},
		"gateway_tls": map[string]any{"ca_file": ca.file, "cert_file": agentCert, "key_file": agentKey},
		"services":    []any{map[string]any{"name": testService, "http": map[string]any{"url": svc.URL}}},
	}
	check := func(config map[string]any) (stdout, stderr string, code int) {
		file := writeFile(t, "nodeagent.yaml", "")
		writeConfig(t, file, config)
		return run(t, nil, "nodeagent", "--check", "--config", file)
	}
	if out, said, code := check(config); code != 0 || !strings.Contains(out, "token fleet may be node *") {
		t.Errorf("--check: exit status %d\n%s%s", code, out, said)
	}
	for what, change := range map[string]map[string]any{
		"no certificate":    {"gateway_tls": map[string]any{"ca_file": ca.file}},
		"another authority": {"gateway_tls": map[string]any{"ca_file": newAuthority(t).file, "cert_file": agentCert, "key_file": agentKey}},
		"without TLS":       {"gateway_tls": nil, "gateway": "ws://" + addr},
		"another listener":  {"gateway_tls": nil, "gateway": r.ws()},
	} {
		wrong := maps.Clone(config)
		maps.Copy(wrong, change)
		if out, said, code := check(wrong); code != 1 || !strings.Contains(said, ": gateway 127.0.0.1:") {
			t.Errorf("%s: exit status %d\n%s%s", what, code, out, said)
		}
	}
	file := writeFile(t, "nodeagent.yaml", "")
	writeConfig(t, file, config)
	a := start(t, nil, "nodeagent", "--config", file)
	r.awaitNodes(1)
	waitOurs(t, submitOurs(t, r.ws(), anyJobs(20)))
	a.stop()
}
