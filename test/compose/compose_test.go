package compose

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"

	"github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// started are the services that need no registry.
var started = []string{"redis", "scheduler-1", "scheduler-2", "proxy", "node-1", "node-2", "node-3"}

// TestDeploy makes a release, and runs deploy/compose with its images: a job goes through, also
// when a replica is gone.
func TestDeploy(t *testing.T) {
	dist := releases(t)
	checkRelease(t, dist)
	checkDockerfile(t, dist)
	runCompose(t, dist)
}

// runCompose runs deploy/compose with the images of a release.
func runCompose(t *testing.T, dist string) {
	t.Helper()
	for _, program := range programs {
		image := filepath.Join(dist, "images", program+"_"+version+"_linux_amd64.docker.tar")
		command(t, ".", nil, "docker", "load", "-i", image)
	}
	shell, err := try(t, ".", nil, "docker", "run", "--rm", "--entrypoint", "/bin/sh", "freeslot/scheduler:"+version)
	if err == nil {
		t.Errorf("a shell ran in the scheduler's image, and wrote %q; want none in it", shell)
	}
	s := newSystem(t)
	s.checkFiles()
	s.up()
	s.job("node-1", "node-2", "node-3")
	s.compose("stop", "scheduler-1")
	s.job("node-1", "node-2", "node-3")
	s.firstProcess()
}

// system is what compose.yaml describes, in a copy of deploy.
type system struct {
	t       *testing.T
	dir     string
	address string
}

// newSystem copies deploy, and makes its secrets.
func newSystem(t *testing.T) *system {
	t.Helper()
	port, err := server.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	redis := os.Getenv("FREESLOT_TEST_REDIS_SERVER")
	if redis == "" {
		redis = "redis-server"
	}
	t.Setenv("REDIS_IMAGE", load(t, "redis", map[string]string{"redis-server": redis}))
	t.Setenv("PROXY_IMAGE", load(t, "proxy", map[string]string{"caddy": "caddy"}))
	t.Setenv("FREESLOT_PORT", fmt.Sprint(port))
	t.Setenv("COMPOSE_PROJECT_NAME", fmt.Sprintf("freeslot-test-%d", os.Getpid()))
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "deploy"), os.DirFS("../../deploy")); err != nil {
		t.Fatal(err)
	}
	s := &system{t, filepath.Join(root, "deploy", "compose"), fmt.Sprintf("http://127.0.0.1:%d", port)}
	for _, made := range []string{"secrets", "access", ".env"} {
		if err := os.RemoveAll(filepath.Join(s.dir, made)); err != nil {
			t.Fatal(err)
		}
	}
	command(t, s.dir, nil, "sh", "./secrets.sh", version)
	if _, err := try(t, s.dir, nil, "sh", "./secrets.sh", version); err == nil {
		t.Error("secrets.sh ran again; want it to refuse to replace secrets")
	}
	return s
}

func (s *system) compose(args ...string) string {
	s.t.Helper()
	return command(s.t, s.dir, nil, "docker-compose", args...)
}

// checkFiles reads the files as both generations of compose do, and Prometheus.
func (s *system) checkFiles() {
	s.t.Helper()
	services := strings.Fields(s.compose("config", "--services"))
	options, err := cli.NewProjectOptions([]string{filepath.Join(s.dir, "compose.yaml")}, cli.WithName("freeslot"),
		cli.WithWorkingDirectory(s.dir), cli.WithOsEnv, cli.WithEnvFiles(), cli.WithDotEnv, cli.WithProfiles([]string{"*"}))
	if err != nil {
		s.t.Fatal(err)
	}
	project, err := options.LoadProject(s.t.Context())
	if err != nil {
		s.t.Fatalf("compose v2: %v; want no error", err)
	}
	for _, want := range append(slices.Clone(started), "prometheus", "grafana", "schedctl") {
		service, ok := project.Services[want]
		if !ok || want != "schedctl" && !slices.Contains(services, want) {
			s.t.Errorf("no service %s in %v, %v; want it", want, services, project.ServiceNames())
		}
		for _, volume := range service.Volumes {
			if _, err := os.Stat(volume.Source); volume.Type == "bind" && err != nil {
				s.t.Errorf("%s: %v; want the file that it mounts", want, err)
			}
		}
		ours := strings.HasPrefix(service.Image, "freeslot/")
		if ours && (!service.ReadOnly || service.User == "" || strings.HasPrefix(service.User, "0")) {
			s.t.Errorf(
				"%s runs as %q, read-only: %t; want a user that is not root, and read-only", want, service.User, service.ReadOnly,
			)
		}
	}
	command(s.t, s.dir, nil, "cp", "../prometheus/freeslot.rules.yaml", ".")
	command(s.t, s.dir, nil, "promtool", "check", "config", "prometheus.yml")
}

// up starts the services, and waits for a replica and the nodes.
func (s *system) up() {
	s.t.Helper()
	s.t.Cleanup(func() {
		// The test's own context has ended.
		t := s.t
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if t.Failed() {
			_ = run(ctx, s.dir, "docker-compose", "logs", "--no-color", "--tail", "50")
		}
		if err := run(ctx, s.dir, "docker-compose", "down", "--volumes", "--timeout", "5"); err != nil {
			t.Error(err)
		}
	})
	s.compose(append([]string{"up", "-d"}, started...)...)
	waittest.Succeeds(s.t, "a replica that is ready behind the proxy", func() error {
		request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.address+"/readyz", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		return errors.Join(err, answer.Body.Close())
	})
}

// job runs a job by schedctl, in a container and by the WebSocket of a replica, once the nodes are
// online.
func (s *system) job(nodes ...string) {
	s.t.Helper()
	waittest.Succeeds(s.t, "nodes online: "+strings.Join(nodes, ", "), func() error {
		out, err := try(s.t, s.dir, nil, "docker-compose", "run", "--rm", "-T", "schedctl", "nodes")
		for _, node := range nodes {
			online := slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
				fields := strings.Fields(line)
				return len(fields) > 1 && fields[0] == node && fields[1] == "online"
			})
			if err == nil && !online {
				err = fmt.Errorf("%s is not online: %s", node, out)
			}
		}
		return err
	})
	out := s.compose("run", "--rm", "-T", "schedctl", "submit", "wordcount", `"three words here"`, "--wait")
	if strings.TrimSpace(out) != "3" {
		s.t.Errorf("the job gave %q; want 3", out)
	}
}

// firstProcess runs an agent by itself, whose command leaves a process behind: as the first process
// of the container the agent leaves no zombie, it says that it cannot limit commands, and it stops
// in order.
func (s *system) firstProcess() {
	s.t.Helper()
	s.compose("stop", "node-1", "node-2", "node-3")
	config := filepath.Join(s.t.TempDir(), "nodeagent.yaml")
	if err := os.WriteFile(config, []byte(`
gateway: ws://proxy:7480
gateway_insecure: true
token_file: /run/secrets/node-token
services:
  - name: wordcount
    command:
      argv: [sh, -c, "sleep 0.1 & echo 3"]
      limits: {pids: 20}
`), 0o644); err != nil { //nolint:gosec // another user reads it
		s.t.Fatal(err)
	}
	project := os.Getenv("COMPOSE_PROJECT_NAME")
	id := strings.TrimSpace(command(s.t, s.dir, nil, "docker", "run", "-d", "--name", project+"-first", "--read-only",
		"--cap-drop", "ALL",
		"--network", project+"_nodes", "-e", "FREESLOT_NODE__ID=node-first", "-v", config+":/etc/freeslot/nodeagent.yaml:ro",
		"-v", filepath.Join(s.dir, "secrets", "node-token")+":/run/secrets/node-token:ro", "freeslot/nodeagent:"+version))
	s.t.Cleanup(func() { _ = run(context.Background(), s.dir, "docker", "rm", "-f", id) })
	s.job("node-first")
	waittest.Succeeds(s.t, "the agent alone, without a zombie", func() error {
		out, err := try(s.t, s.dir, nil, "docker", "top", id, "-o", "pid,stat,args")
		if lines := strings.Split(strings.TrimSpace(out), "\n"); err == nil && len(lines) != 2 {
			err = fmt.Errorf("these are left: %s", out)
		}
		return err
	})
	command(s.t, s.dir, nil, "docker", "stop", "--time", "60", id)
	if code := strings.TrimSpace(command(
		s.t, s.dir, nil, "docker", "inspect", "-f", "{{.State.ExitCode}}", id,
	)); code != "0" {
		s.t.Errorf("after docker stop the exit code is %s; want 0", code)
	}
	log := exec.CommandContext(s.t.Context(), "docker", "logs", id)
	if out, err := log.CombinedOutput(); err != nil || !strings.Contains(string(out), "limits.unavailable") {
		s.t.Errorf("the log has %s, %v; want limits.unavailable", out, err)
	}
}

// run runs a program with its output to the test's.
func run(ctx context.Context, dir, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, os.Stderr, os.Stderr
	return c.Run()
}
