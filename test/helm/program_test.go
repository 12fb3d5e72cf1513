package helm

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestReplicaConfig: the real scheduler accepts the configuration of each set, strictly and without
// a warning, with the files that the pod mounts.
func TestReplicaConfig(t *testing.T) {
	t.Parallel()
	made := secrets(t)
	for _, set := range sets {
		o := example(t, set, nil)
		w := o.one("scheduler", "")
		p := pod(t, o, w, w.pod.Spec.Containers[0], made)
		out, err := p.command("scheduler", "--check").CombinedOutput()
		if err != nil || string(out) != "the configuration is valid\n" {
			t.Errorf("%s: the check ends with %v and\n%s\nwant a valid configuration\n%s", set, err, out, o.text)
		}
	}
}

// TestServiceLinks: with the variables that Kubernetes would set for a Service of this name, the
// scheduler does not start. So the pods must not have them.
func TestServiceLinks(t *testing.T) {
	t.Parallel()
	o := example(t, "trial", nil)
	w := o.one("scheduler", "")
	p := pod(t, o, w, w.pod.Spec.Containers[0], secrets(t))
	p.env = append(p.env, "FREESLOT_PORT=tcp://10.96.0.7:7480")
	out, err := p.command("scheduler", "--check").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "FREESLOT_PORT") {
		t.Errorf("the check ends with %v and %s; want a refusal of FREESLOT_PORT", err, out)
	}
}

// system is a replica with the configuration of a set, on a Redis and a port of this machine.
type system struct {
	t       *testing.T
	o       *objects
	made    map[string]map[string][]byte
	replica *fakePod
	address string
	tls     bool
}

func startSystem(t *testing.T, set string) *system {
	t.Helper()
	s := &system{t: t, o: example(t, set, nil), made: secrets(t)}
	w := s.o.one("scheduler", "")
	p := pod(t, s.o, w, w.pod.Spec.Containers[0], s.made)
	s.replica = p
	config := configOf(t, s.o, w, "scheduler.yaml")
	_, s.tls = config["tls"]
	s.address = freeAddress(t)
	// A server of this machine has no users and no TLS.
	more := []string{"--redis-url", redistest.New(t).URL(), "--listen", s.address, "--set", "metrics_listen=" + freeAddress(t), "--set", "redis.username=", "--set", "redis.password_file=", "--set", "redis.tls={}"}
	s.start("scheduler", p, more)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	waittest.Succeeds(t, "a ready replica", func() error {
		answer, err := (&http.Client{Transport: transport}).Get(s.url() + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("its status is %s", answer.Status)
		}
		return nil
	})
	return s
}

func (s *system) url() string {
	if s.tls {
		return "https://" + s.address
	}
	return "http://" + s.address
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts a program, and ends it with the test.
func (s *system) start(program string, p *fakePod, more []string) {
	s.t.Helper()
	log := filepath.Join(p.dir, "log")
	file, err := os.Create(log)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(programs, program), append(p.args, more...)...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = environment(p.env), p.dir, file, file
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), file.Close())
		if text, _ := os.ReadFile(log); s.t.Failed() || err != nil {
			s.t.Errorf("%s ended with %v:\n%s\nwant an orderly stop", program, err, text)
		}
	})
}

// agent lays out a group's agent. It connects to the replica here, and otherwise as in the cluster:
// the replica's certificate must have the Service's name.
func (s *system) agent(group string) (p *fakePod, more []string) {
	s.t.Helper()
	w := s.o.one("node", group)
	p = pod(s.t, s.o, w, w.pod.Spec.Containers[0], s.made)
	config := configOf(s.t, s.o, w, "nodeagent.yaml")
	gateway, err := url.Parse(config["gateway"].(string))
	if err != nil || gateway.Host != "freeslot."+namespace+".svc:7480" || gateway.Scheme == "wss" != s.tls {
		s.t.Fatalf("the gateway of %s is %v, %v; want the Service", group, gateway, err)
	}
	if config["gateway_insecure"] != true && !s.tls {
		s.t.Errorf("the agent of %s would warn at each start that its gateway is not encrypted; want gateway_insecure", group)
	}
	more = []string{"--metrics-listen", freeAddress(s.t), "--set", "gateway=" + gateway.Scheme + "://" + s.address}
	if s.tls {
		more = append(more, "--set", "gateway_tls.server_name="+gateway.Hostname())
	}
	return p, more
}

// TestNodeConfig: the real nodeagent accepts the configuration of each group, and the gateway its
// token, through TLS where the set has it.
func TestNodeConfig(t *testing.T) {
	t.Parallel()
	tools := t.TempDir() // a program of the example
	if err := os.WriteFile(filepath.Join(tools, "whisper"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for set, groups := range map[string][]string{"trial": {"cpu"}, "managed": {"cpu"}, "gpu": {"tts", "whisper"}} {
		s := startSystem(t, set)
		for _, group := range groups {
			p, more := s.agent(group)
			if group == "whisper" {
				p.initLabels(s.o, s.o.one("node", group), s.made, map[string]string{"nvidia.com/gpu.product": "A100"})
			}
			cmd := p.command("nodeagent", append(more, "--check")...)
			var said bytes.Buffer
			cmd.Env, cmd.Stderr = append(cmd.Env, "PATH="+tools+":"+os.Getenv("PATH")), &said
			out, err := cmd.Output()
			for line := range strings.Lines(said.String()) {
				if !strings.Contains(line, "runs as root") { // as this test may, and the pod does not
					t.Errorf("%s: the check of %s warns of %s; want no warning", set, group, line)
				}
			}
			want := fmt.Sprintf("the configuration is valid\ntoken %s may be node freeslot-%s-*", group, group)
			if err != nil || !strings.HasPrefix(string(out), want) {
				t.Errorf("%s: the check of %s ends with %v and\n%s\nwant %s", set, group, err, out, want)
			}
		}
	}
}

// schedctl returns a function that runs schedctl with a token at the replica.
func (s *system) schedctl(token []byte) func(args ...string) (string, error) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "token")
	if err := os.WriteFile(file, token, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return func(args ...string) (string, error) {
		args = append([]string{"--server", s.url(), "--token-file", file}, args...)
		cmd := exec.CommandContext(s.t.Context(), filepath.Join(programs, "schedctl"), args...)
		cmd.Env = environment(nil)
		out, err := cmd.CombinedOutput()
		return string(bytes.TrimSpace(out)), err
	}
}

// TestSecretChange: after a change of the Secret of tokens the replica knows the new one, without a
// restart, as Secrets change in a pod.
func TestSecretChange(t *testing.T) {
	t.Parallel()
	s := startSystem(t, "trial")
	token, line := schedctl(t, "tokens", "new", "ann", "--role", "viewer", "--tenant", "ops")
	run := s.schedctl(token)
	if out, err := run("whoami"); err == nil {
		t.Fatalf("a token that is not in the Secret yet opens %s; want a refusal", out)
	}
	s.replica.write("/etc/freeslot/tokens", map[string][]byte{"tokens.yaml": append(s.made["freeslot-tokens"]["tokens.yaml"], line...)})
	waittest.Succeeds(t, "a new token", func() error {
		out, err := run("whoami")
		if err == nil && !strings.Contains(out, "ann") {
			err = fmt.Errorf("the caller is %s", out)
		}
		return err
	})
}

// TestJob: with the trial's configurations a job goes through.
func TestJob(t *testing.T) {
	t.Parallel()
	s := startSystem(t, "trial")
	p, more := s.agent("cpu")
	s.start("nodeagent", p, more)
	run := s.schedctl(s.made["ops"]["token"])
	waittest.Succeeds(t, "a node", func() error {
		out, err := run("nodes")
		if err == nil && !strings.Contains(out, "freeslot-cpu-5d8f7c9b6-x2x4z") {
			err = fmt.Errorf("the nodes are %s", out)
		}
		return err
	})
	if out, err := run("submit", "wordcount", `"one two three"`, "--wait"); err != nil || !strings.Contains(out, "3") {
		t.Errorf("the job ends with %v and %s; want 3 words", err, out)
	}
}
