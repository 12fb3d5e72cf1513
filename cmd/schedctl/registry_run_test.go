//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/interrupt"
	"github.com/freeslot/freeslot/internal/process/procgroup"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestRegistryRun: the command is registered while it runs, and schedctl ends with its exit code.
// It needs a user of the role registry, not an operator.
func TestRegistryRun(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		store := registry.NewStore(redis.Client(t), prefix, redis.IsCluster(), zap.NewNop())
		marker, options := t.TempDir()+"/go", t.TempDir()+"/options.yaml"
		must(t, os.WriteFile(options, []byte("registry: {redis: {key-prefix: "+prefix+"}, heartbeat: {heartbeat-interval: 700ms}}"), 0o600))
		args := []string{
			"registry", "run", "shop", "--redis-url", redis.AdminURL(), "--config", options, "--port", "8080", "--check", "/healthz", "--label", "zone=a",
			"--", "sh", "-c", "until [ -e " + marker + " ]; do sleep 0.02; done; exit 3",
		}
		done := make(chan result, 1)
		go func() { done <- command(t, "", args...) }()
		var d registry.Detail
		must(t, redistest.Await(func(ctx context.Context) (ok bool) {
			var err error
			d, _, err = store.Instance(ctx, "shop", "127.0.0.1:8080")
			return err == nil
		}))
		if d.Interval != 700*time.Millisecond || d.Protocol != "HTTP" || d.Metadata["zone"] != "a" || d.Check == nil || d.Check.Kind != "http" || d.Check.Path != "/healthz" {
			t.Errorf(`%+v; want d.Interval == 700*time.Millisecond, d.Protocol == "HTTP", d.Metadata["zone"] == "a", d.Check != nil, d.Check.Kind == "http", d.Check.Path == "/healthz"`, d)
		}
		must(t, os.WriteFile(marker, nil, 0o600))
		if got := <-done; got.code != 3 || got.err != "" {
			t.Errorf("%+v, expected code 3 and no warning", got)
		}
		if _, _, err := store.Instance(t.Context(), "shop", "127.0.0.1:8080"); err == nil {
			t.Error("the instance is registered after the end of the command")
		}
	})
}

// TestRegistryRunRefused: a command that cannot be registered does not start.
func TestRegistryRunRefused(t *testing.T) {
	t.Parallel()
	redis, bad := redistest.Shared(t), t.TempDir()+"/options.yaml"
	must(t, os.WriteFile(bad, []byte("registry: {heartbeats: {}, timeout: 1ms}"), 0o600))
	useless := t.TempDir() + "/useless.yaml"
	must(t, os.WriteFile(useless, []byte("registry: {stop-pause: 1s, timeout: 1m, snapshot-dir: /var/lib/x}"), 0o600))
	started := t.TempDir() + "/started"
	for flags, want := range map[string]string{
		"--port 80 --weight 0": "--weight is 0, expected more than 0 and at most 10000; for none, use schedctl registry set SERVICE ID --no-enabled", "--port 80 --interval 0s": "--interval is 0s", "--port 80 --interval=-1s": "--interval is -1s",
		"--port 80 --interval 1ms": "interval is 1ms", "--port 80 --drain=-1s": "--drain is -1s", "--port 80 --config " + useless: "use --drain",
		"--port 80 --host schön": `has 'ö'`, "--port 80 --id schön": `has 'ö'`, "--port 80 --id a/b --host 10.0.0.7:80": "host",
		"--port 70000": "port", "--port 80 --check ldap:x": "check", "--port 80 --config " + bad: "registry.heartbeats is not a key",
	} {
		args := append([]string{"registry", "run", "shop", "--redis-url", redis.AdminURL(), "--key-prefix", redis.Prefix(t)}, strings.Fields(flags)...)
		got := command(t, "", append(args, "--", "touch", started)...)
		if got.code != exitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v, expected a complaint about %s", flags, got, want)
		}
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("a refused command was started")
	}
}

// TestRegistryRunCheck: a kind of check that schedulers do not have by themselves gets a warning.
func TestRegistryRunCheck(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	for check, want := range map[string]string{
		"healthz": "schedctl: --check healthz is none of http, https, tcp, grpc, websocket; for a path write --check /healthz\n", "/healthz": "", "tcp": "",
	} {
		got := command(t, "", "registry", "run", "shop", "--redis-url", redis.AdminURL(), "--key-prefix", redis.Prefix(t), "--port", "80", "--check", check, "--", "true")
		if got.code != exitOK || got.err != want {
			t.Errorf("--check %s: %+v, expected code 0 and on standard error %q", check, got, want)
		}
	}
}

// TestRegistryRunWithoutRedis: the command runs all the same, and is registered when Redis is
// there.
func TestRegistryRunWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	redis.Kill()
	marker := t.TempDir() + "/go"
	var stderr buffer
	done := make(chan int, 1)
	go func() {
		args := []string{
			"registry", "run", "shop", "--redis-url", redis.AdminURL(), "--key-prefix", "p", "--port", "8080",
			"--", "sh", "-c", "touch " + marker + ".started; until [ -e " + marker + " ]; do sleep 0.02; done; exit 3",
		}
		done <- run(args, &environment{ctx: t.Context(), in: strings.NewReader(""), out: &buffer{}, err: &stderr})
	}()
	// Redis stays away until the command runs and the first try to register has failed.
	must(t, redistest.Await(func(context.Context) bool {
		_, err := os.Stat(marker + ".started")
		return err == nil && strings.Contains(stderr.String(), "not registered yet")
	}))
	redis.Restart()
	store := registry.NewStore(redis.Client(t), "p", false, zap.NewNop())
	must(t, redistest.Await(func(ctx context.Context) bool {
		_, _, err := store.Instance(ctx, "shop", "127.0.0.1:8080")
		return err == nil
	}))
	must(t, os.WriteFile(marker, nil, 0o600))
	if code := soon(t, done, "the end of the command"); code != 3 {
		t.Errorf("code %d, expected 3\n%s", code, stderr.String())
	}
}

// TestRegistryRunTwice: of two processes with one host and port the second one holds the instance, whatever the first
// one gets to know and does. When Redis loses its data the second one registers again. When the second one ends, the
// first one does not come back.
func TestRegistryRunTwice(t *testing.T) {
	t.Parallel()
	for name, interval := range map[string]string{"the first knows": "100ms", "the first does not know": "5m", "the second ends": "1s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t)
			store := registry.NewStore(redis.Client(t), "p", false, zap.NewNop())
			begin := func(interval string) (cmd *exec.Cmd, stderr *buffer) {
				cmd = exec.Command(os.Args[0], "registry", "run", "ov", "--redis-url", redis.AdminURL(), "--key-prefix", "p", "--host", "10.0.0.7",
					"--port", "8001", "--drain", "10ms", "--interval", interval, "--", "sh", "-c", forever)
				stderr = &buffer{}
				cmd.Env, cmd.Stderr = append(os.Environ(), asSchedctl+"=1"), stderr
				must(t, cmd.Start())
				return cmd, stderr
			}
			epoch := func() string {
				d, _, err := store.Instance(t.Context(), "ov", "10.0.0.7:8001")
				if err != nil {
					return ""
				}
				if d.Draining {
					t.Errorf("the instance of epoch %s is draining, expected that only the command's end drains it", d.Epoch)
				}
				return d.Epoch
			}
			await := func(what string, is func() bool) {
				t.Helper()
				if err := redistest.Await(func(context.Context) bool { return is() }); err != nil {
					t.Fatalf("waited for %s: %v", what, err)
				}
			}
			end := func(cmd *exec.Cmd) {
				t.Helper()
				must(t, cmd.Process.Signal(syscall.SIGTERM))
				_ = cmd.Wait()
				if got := cmd.ProcessState.ExitCode(); got != 128+int(syscall.SIGTERM) {
					t.Errorf("ended with %d, expected %d", got, 128+int(syscall.SIGTERM))
				}
			}
			first, firstErr := begin(interval)
			await("the first process", func() bool { return epoch() != "" })
			one := epoch()
			second, secondErr := begin("100ms")
			await("the second process", func() bool { return epoch() != one && epoch() != "" })
			two := epoch()
			if interval == "1s" {
				end(second)
			}
			if interval != "5m" {
				await("the first process' word", func() bool { return strings.Contains(firstErr.String(), "not registered any more") })
			}
			end(first)
			if interval == "1s" {
				if got := epoch(); got != "" {
					t.Errorf("epoch %q holds the instance, expected none: the first process was superseded", got)
				}
				return
			}
			if got := epoch(); got != two {
				t.Errorf("epoch %q holds the instance, expected %q of the second process", got, two)
			}
			must(t, redis.Client(t).Do(t.Context(), redis.Client(t).B().Flushall().Build()).Error())
			await("the second process after the loss of data", func() bool { return epoch() == two })
			end(second)
			if got := epoch(); got != "" {
				t.Errorf("epoch %q holds the instance, expected none after the end of both", got)
			}
			if text := secondErr.String(); text != "" {
				t.Errorf("the second process warned %q, expected nothing", text)
			}
		})
	}
}

// TestRegistryRunDrains: the first signal marks the instance as draining. The command gets it later.
func TestRegistryRunDrains(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	store := registry.NewStore(redis.Client(t), prefix, false, zap.NewNop())
	p, err := registry.NewProvider(registry.Options{RedisURL: redis.AdminURL(), KeyPrefix: prefix, StopPause: -1})
	must(t, err)
	must(t, p.Start(t.Context()))
	t.Cleanup(func() { must(t, p.Stop(context.Background())) })
	cmd := exec.Command("sh", "-c", forever)
	cmd.SysProcAttr = procgroup.Attr()
	must(t, cmd.Start())
	group := cmd.Process.Pid
	signals, ended := make(chan os.Signal, 2), make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() {
		_ = guardRegistered(&app{environment: &environment{ctx: t.Context(), err: os.Stderr}}, p, registry.Registration{Service: "shop", Port: 8080}, group, time.Hour, signals, ended)
	})
	for range 4 { // GNU timeout sends it twice
		signals <- syscall.SIGTERM
	}
	must(t, redistest.Await(func(ctx context.Context) bool {
		d, _, err := store.Instance(ctx, "shop", "127.0.0.1:8080")
		return err == nil && d.Draining
	}))
	must(t, syscall.Kill(group, 0)) // the command has an hour
	time.Sleep(interrupt.Gap)       // what comes sooner belongs to the first signal
	signals <- syscall.SIGTERM
	_ = cmd.Wait()
	close(ended)
	guard.Wait()
	if got := exitCode(cmd.ProcessState); got != 128+int(syscall.SIGTERM) {
		t.Errorf("the command ended with %d", got)
	}
}
