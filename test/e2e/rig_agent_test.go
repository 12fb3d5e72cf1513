package e2e

import (
	"cmp"
	"path/filepath"
	"time"
)

const (
	// testService is run by an HTTP request to the node's service.
	testService = "count"
	// shoutService is run by a command, on nodes with shout.
	shoutService = "shout"
	// heartbeatInterval is shorter than the agents' default: a replica learns of slots that became
	// free between full and idle by the next heartbeat only.
	heartbeatInterval = 500 * time.Millisecond
)

// nodeSpec is what a node is configured with.
type nodeSpec struct {
	id     string
	slots  int
	tts    []string
	pools  []string
	labels map[string]string
	// shout adds the service that is a command.
	shout bool
	// gateway is where the agent connects in place of Redis; see doors.
	gateway string
	// heartbeat is the interval; heartbeatInterval unless set.
	heartbeat time.Duration
}

// startAgent starts a nodeagent. It is registered when a replica sees it.
func (s *system) startAgent(n nodeSpec, svc *service) *process {
	s.t.Helper()
	services := []any{map[string]any{"name": testService, "http": map[string]any{"url": svc.URL}}}
	if n.shout {
		services = append(services, map[string]any{
			"name": shoutService, "command": map[string]any{"argv": []string{"tr", "a-z", "A-Z"}, "input": "text", "output": "text"},
		})
	}
	config := map[string]any{
		"node": map[string]any{
			"id": n.id, "max_concurrency": n.slots, "languages": map[string]any{"tts": n.tts}, "pools": n.pools, "labels": n.labels,
		},
		"services":     services,
		"stop_timeout": time.Minute.String(),
	}
	s.connect(config, n.gateway)
	config["heartbeat_interval"] = cmp.Or(n.heartbeat, heartbeatInterval).String()
	file := filepath.Join(s.t.TempDir(), n.id+".yaml")
	writeConfig(s.t, file, config)
	return start(s.t, nil, "nodeagent", "--config", file)
}

// connect adds to an agent's configuration where it connects: a gateway, or Redis without one.
func (s *system) connect(config map[string]any, gateway string) {
	if s.byGateway && gateway == "" {
		gateway = doors(s.replicas...)
	}
	if gateway == "" {
		config["redis"] = s.redisConfig()
		return
	}
	config["gateway"], config["token_file"] = gateway, s.token
}
