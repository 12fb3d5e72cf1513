package replica

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/redis/acl"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/certtest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// examined returns the ids of what a doctor finds, and its report.
func examined(t *testing.T, cfg config.Replica) ([]string, finding.Report) {
	t.Helper()
	report, err := Doctor(waittest.Context(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return idsOf(&report), report
}

// idsOf returns the ids of findings, without what a busy machine makes slow.
func idsOf(report *finding.Report) (ids []string) {
	for _, f := range report.Findings {
		if f.ID != "redis.latency" && f.ID != "redis.slow" {
			ids = append(ids, f.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestDoctor: without any replica a doctor finds what the replicas would, and more, and it can with
// the rights of its role. With the rights of a replica it says what it may not read. A running
// replica that is asked for it says the same.
func TestDoctor(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1, redistest.AppendOnly("everysec"), redistest.Args("--maxmemory", "1gb"))
	do := func(args ...string) {
		t.Helper()
		client := redis.Client(t)
		if err := client.Do(waittest.Context(t), client.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	do("CONFIG", "SET", "repl-backlog-size", "256mb", "tcp-keepalive", "60")
	cfg := configured(t)
	cfg.Redis.URL = redis.AdminURL()
	if ids, report := examined(t, cfg); len(ids) > 0 || len(report.Unknown) > 0 || len(report.Unchecked) > 0 {
		t.Errorf("found %v, %+v; want nothing, and everything checked", ids, report)
	}
	do("CONFIG", "SET", "timeout", "5", "appendonly", "no", "maxmemory-policy", "volatile-ttl")
	want := []string{"redis.idle", "redis.settings.0.0"}
	ids, report := examined(t, cfg)
	if code, _ := report.Verdict(); !slices.Equal(ids, want) || code != 2 {
		t.Errorf("found %v, exit code %d; want %v, and 2 because of the policy", ids, code, want)
	}
	for _, line := range []string{"CRITICAL: redis at", "  see:  docs/redis.md#timeout-and-tcp-keepalive"} {
		if text := strings.Join(report.Lines(), "\n"); !strings.Contains(text, line) {
			t.Errorf("it says\n%s\nwant %q", text, line)
		}
	}
	do("CONFIG", "SET", "maxmemory-policy", "noeviction")

	as := cfg
	as.Redis.Username, as.Redis.PasswordFile = "doctor", doctorsPassword(t, redis.Server, script.Layouts(cfg.Redis.KeyPrefix, 1, false))
	if ids, report := examined(t, as); !slices.Equal(ids, want) || len(report.Unknown) > 0 || len(report.Unchecked) > 0 {
		t.Errorf("as doctor found %v, %+v; want %v, and everything checked", ids, report, want)
	}
	do("ACL", "SETUSER", "doctor", "-config", "-slowlog")
	if ids, report := examined(t, as); !slices.Equal(ids, want[1:]) || len(report.Unchecked) != 2 {
		t.Errorf("without rights found %v, not checked %q; want %v, and two things not checked", ids, report.Unchecked, want[1:])
	}

	r := began(t, cfg)
	var asked finding.Report
	got := sendBody(t, r, http.MethodGet, "/v1/findings?doctor=true", "", "")
	if err := json.Unmarshal([]byte(got.text), &asked); err != nil || !slices.Contains(idsOf(&asked), "redis.idle") {
		t.Errorf("a replica answers %d %s, %v; want redis.idle, too", got.status, got.text, err)
	}
	got = sendBody(t, r, http.MethodGet, "/v1/findings", "", "")
	if strings.Contains(got.text, "redis.idle") {
		t.Errorf("unasked it answers %s; want no close look at Redis", got.text)
	}
	redis.Replicas[0].Pause()
	waittest.Until(t, "the lagging replica to be found", func() bool {
		ids, _ = examined(t, cfg)
		return slices.Contains(ids, "redis.replicas")
	}, func() any { return ids })
	redis.Replicas[0].Resume()
}

// doctorsPassword makes the user doctor, with the rights of its role, and returns a file with its
// password.
func doctorsPassword(t *testing.T, redis *redistest.Server, cells []script.Layout) string {
	t.Helper()
	rights, err := acl.Of(script.RoleDoctor, "", cells, Access()...)
	if err != nil {
		t.Fatal(err)
	}
	topology, err := redisclient.Inspect(waittest.Context(t), redisclient.Config{URL: redis.AdminURL()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := acl.Apply(waittest.Context(t), topology, []acl.User{{Name: "doctor", Rights: rights, Password: "secret"}}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestDoctorCertificates: certificates of servers, of connections and of listeners that run out.
func TestDoctorCertificates(t *testing.T) {
	t.Parallel()
	ca, dir := certtest.NewAuthority(t), t.TempDir()
	authority, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ca.WriteCA(t, authority)
	ca.Write(t, cert, key, "server")
	free, err := redisserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(free)
	redistest.New(t, redistest.AppendOnly("everysec"), redistest.Args("--maxmemory", "1gb", "--tcp-keepalive", "60", "--tls-port", port,
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", authority))
	cfg := configured(t)
	cfg.Redis.URL = "rediss://127.0.0.1:" + port + "?dial_timeout=20s"
	cfg.Redis.TLS.CAFile, cfg.Redis.TLS.CertFile, cfg.Redis.TLS.KeyFile = authority, cert, key
	cfg.TLS.CertFile, cfg.TLS.KeyFile = cert, key
	want := []string{"certificate.redis.tls", "certificate.redis_at_127.0.0.1:" + port, "certificate.tls"}
	if ids, report := examined(t, cfg); !slices.Equal(ids, want) {
		t.Errorf("found %v, %+v; want %v", ids, report, want)
	}
	cfg.Findings.Expiry = time.Minute
	if ids, report := examined(t, cfg); len(ids) > 0 {
		t.Errorf("found %v, %+v; want nothing with an hour left", ids, report)
	}
}
