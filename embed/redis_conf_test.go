package embed_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/embed"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

// own lists the settings that a test cannot take from a file, because they belong to the machine.
var own = []string{"bind", "port", "dir", "save", "sentinel"}

func conf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../deploy/redis", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withConf starts a server with a file of deploy/redis, and compares what is then in force with the
// file.
func withConf(t *testing.T, name string, args ...string) *redistest.Server {
	t.Helper()
	text := conf(t, name)
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := redistest.New(t, redistest.AppendOnly("everysec"), func(c *redisserver.Config) { c.ConfigFile = file },
		redistest.Args(args...))
	client, compared := s.Client(t), 0
	for line := range strings.Lines(text) {
		setting, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if setting == "" || setting == "#" || strings.Contains(strings.Join(own, " "), setting) {
			continue
		}
		got, err := client.Do(deadline(t), client.B().ConfigGet().Parameter(setting).Build()).AsStrMap()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got[setting], inForce(value)) {
			t.Errorf("%s: %s is %q; want %q", name, setting, got[setting], value)
		}
		compared++
	}
	if compared < 18 {
		t.Errorf("%s: %d settings were compared; want 18 or more", name, compared)
	}
	return s
}

// inForce returns a value of a file in the form in which CONFIG GET shows it.
func inForce(value string) string {
	words := strings.Fields(strings.Trim(value, `"`))
	for i, word := range words {
		for suffix, factor := range map[string]int{"gb": 1 << 30, "mb": 1 << 20} {
			if n, err := strconv.Atoi(strings.TrimSuffix(word, suffix)); err == nil && strings.HasSuffix(word, suffix) {
				words[i] = strconv.Itoa(n * factor)
			}
		}
	}
	text := strings.Join(words, " ")
	return strings.Replace(text, "replica ", "slave ", 1) // as Redis names that class of clients
}

// runJob runs a job through a replica and a worker of their own, on the Redis behind a URL.
func runJob(t *testing.T, cfg embed.Config, admin string, during func(again func())) {
	t.Helper()
	f := &fleet{t: t, cfg: cfg}
	w, err := worker.New(worker.Config{
		RedisURL: admin, KeyPrefix: cfg.KeyPrefix, Cells: cfg.Cells, Node: freeslot.Node{ID: "node-1", MaxConcurrency: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("echo", func(_ context.Context, job *worker.Job) (any, error) { return job.Payload, nil })
	r := f.start(nil)
	if err := w.Start(deadline(t)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Stop(deadline(t)); err != nil {
			t.Error(err)
		}
	}()
	run := func() {
		var state freeslot.State
		waittest.Until(t, "a job to run", func() bool {
			h, err := r.Submit(deadline(t), freeslot.Job{Service: "echo"})
			if err != nil {
				return false // while a master is missing
			}
			status, err := h.Wait(deadline(t))
			state = status.State
			return err == nil && state == freeslot.StateSucceeded
		}, func() any { return state })
	}
	run()
	during(run)
}

// healthy waits until a doctor finds nothing, except what a busy machine makes slow.
func healthy(t *testing.T, url string, cells int) {
	t.Helper()
	cfg := config.DefaultReplica()
	cfg.Redis.URL, cfg.Redis.KeyPrefix, cfg.Redis.Cells = url, "conf", cells
	var ids []string
	waittest.Until(t, "a doctor to find nothing", func() bool {
		report, err := replica.Doctor(deadline(t), cfg)
		if err != nil {
			t.Fatalf("doctor: %v; want a report", err)
		}
		ids = append(report.Unknown, report.Unchecked...)
		for _, f := range report.Findings {
			if f.ID != "redis.latency" && f.ID != "redis.slow" {
				ids = append(ids, f.ID+": "+strings.Join(f.Names, ", "))
			}
		}
		return len(ids) == 0
	}, func() any { return ids })
}

// TestRedisConf: redis-server takes the files of deploy/redis as they are, and a job runs on one
// server, after the failover of a master that sentinels watch, and on a cluster. A doctor finds
// nothing there.
func TestRedisConf(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		s := withConf(t, "single.conf")
		runJob(t, embed.Config{RedisURL: s.URL(), KeyPrefix: "conf"}, s.AdminURL(), func(func()) {})
		healthy(t, s.AdminURL(), 1)
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		fast := []string{"--repl-diskless-sync-delay", "0"} // otherwise a replica waits five seconds
		master := withConf(t, "replicated.conf", fast...)
		port := strconv.Itoa(master.Process().Port())
		for range 2 {
			withConf(t, "replicated.conf", append(fast, "--replicaof", "127.0.0.1 "+port)...)
		}
		text := strings.Replace(conf(t, "sentinel.conf"), "10.0.0.5 6379", "127.0.0.1 "+port, 1)
		text = strings.Replace(text, "/var/lib/redis-sentinel", t.TempDir(), 1)
		var sentinels []string
		for range 3 {
			file := filepath.Join(t.TempDir(), "sentinel.conf")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := redistest.New(t, func(c *redisserver.Config) { c.ConfigFile = file }, redistest.Args("--sentinel"))
			sentinels = append(sentinels, s.Addrs()...)
		}
		waittest.Until(t, "the sentinels to know each other and the replicas", func() bool {
			for _, at := range sentinels {
				facts, err := redistest.Ask(deadline(t), at, "SENTINEL", "MASTER", "main").AsStrMap()
				if err != nil || facts["num-slaves"] != "2" || facts["num-other-sentinels"] != "2" {
					return false
				}
			}
			return true
		}, func() any { return sentinels })
		url := "redis://" + sentinels[0] + "?master_set=main&addr=" + strings.Join(sentinels[1:], "&addr=")
		runJob(t, embed.Config{RedisURL: url, KeyPrefix: "conf"}, url, func(again func()) {
			healthy(t, url, 1)
			master.Kill()
			again()
		})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		var members []*redistest.Server
		create := []string{"--cluster", "create"}
		for range 3 {
			bus, err := redisserver.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			s := withConf(t, "cluster.conf", "--cluster-port", strconv.Itoa(bus), "--cluster-announce-ip", "127.0.0.1")
			members, create = append(members, s), append(create, s.Addrs()...)
		}
		out, err := exec.CommandContext(deadline(t), "redis-cli", append(create, "--cluster-yes")...).CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli: %v\n%s", err, out)
		}
		waittest.Until(t, "the cluster to be whole", func() bool {
			for _, s := range members {
				info, err := redistest.Ask(deadline(t), s.Addrs()[0], "CLUSTER", "INFO").ToString()
				if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_size:3") {
					return false
				}
			}
			return true
		}, func() any { return string(out) })
		cfg := embed.Config{RedisURL: members[0].URL(), KeyPrefix: "conf", Cells: 3}
		runJob(t, cfg, members[0].AdminURL(), func(func()) {})
		healthy(t, members[0].AdminURL(), 3)
	})
}

// TestRedisConfAgree: what holds for one server holds in each file for several.
func TestRedisConfAgree(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"replicated.conf", "cluster.conf"} {
		_, several, _ := strings.Cut(conf(t, name), "\n")
		_, one, _ := strings.Cut(conf(t, "single.conf"), "\n")
		if !strings.HasPrefix(several, one) {
			t.Errorf("%s does not begin with single.conf; want the same settings", name)
		}
	}
}
