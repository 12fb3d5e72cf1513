package doctor

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/finding"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// patient is for tests on a busy machine, where calls are slow.
var patient = Config{Latency: time.Hour, Clock: time.Minute}

// right holds the settings of docs/redis.md that are not Redis' defaults. A busy machine makes any
// call slow, so none is noted as such.
var right = []string{"--maxmemory", "1gb", "--tcp-keepalive", "60", "--slowlog-log-slower-than", "60000000"}

// rig is a server with the settings of docs/redis.md.
type rig struct {
	*redistest.Server
	t      *testing.T
	client rueidis.Client
}

func newRig(t *testing.T, args ...string) *rig {
	t.Helper()
	args = append(slices.Clone(right), args...)
	return with(t, redistest.New(t, redistest.AppendOnly("everysec"), redistest.Args(args...)))
}

func with(t *testing.T, s *redistest.Server) *rig {
	t.Helper()
	return &rig{Server: s, t: t, client: s.Client(t)}
}

func (r *rig) do(command string) {
	r.t.Helper()
	args := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(command, -1)
	for i := range args {
		args[i] = strings.Trim(args[i], `"`)
	}
	if err := r.client.Do(waittest.Context(r.t), r.client.B().Arbitrary(args...).Build()).Error(); err != nil {
		r.t.Fatalf("%s: %v; want no error", command, err)
	}
}

// look returns the ids of what is found, and the details of the last one.
func (r *rig) look(cfg Config) (ids []string, detail string) {
	r.t.Helper()
	found, err := Look(waittest.Context(r.t), []Server{{Addr: r.Addrs()[0], Client: r.client}}, cfg)
	if err != nil {
		r.t.Errorf("not checked: %v; want everything checked", err)
	}
	for i := range found {
		ids, detail = append(ids, found[i].ID), strings.Join(found[i].Names, ", ")
	}
	return ids, detail
}

func (r *rig) wants(cfg Config, id, detail string) {
	r.t.Helper()
	ids, got := r.look(cfg)
	if want := strings.Fields(id); !slices.Equal(ids, want) || !strings.Contains(got, detail) {
		r.t.Errorf("found %v, the last %q; want %v with %q", ids, got, want, detail)
	}
}

// TestSettings: each setting that is wrong is found, and not any more once it is right.
func TestSettings(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wants(patient, "", "")
	for _, c := range []struct{ wrong, right, id, detail string }{
		{"CONFIG SET maxmemory 0", "CONFIG SET maxmemory 1gb", "redis.maxmemory", "(maxmemory 0)"},
		{"CONFIG SET appendfsync no", "CONFIG SET appendfsync everysec", "redis.appendfsync", "(appendfsync no)"},
		{
			"CONFIG SET no-appendfsync-on-rewrite yes", "CONFIG SET no-appendfsync-on-rewrite no", "redis.appendfsync",
			"(no-appendfsync-on-rewrite yes)",
		},
		{
			`CONFIG SET client-output-buffer-limit "pubsub 0 0 0"`, `CONFIG SET client-output-buffer-limit "pubsub 64mb 32mb 60"`,
			"redis.subscribers", "no limit",
		},
		{
			`CONFIG SET client-output-buffer-limit "pubsub 1mb 1mb 60"`,
			`CONFIG SET client-output-buffer-limit "pubsub 64mb 32mb 60"`, "redis.subscribers", "(1 MiB: ",
		},
		{"CONFIG SET timeout 5", "CONFIG SET timeout 0", "redis.idle", "(timeout 5)"},
		{"CONFIG SET tcp-keepalive 0", "CONFIG SET tcp-keepalive 60", "redis.idle", "(tcp-keepalive 0)"},
	} {
		r.do(c.wrong)
		r.wants(patient, c.id, c.detail)
		r.do(c.right)
		r.wants(patient, "", "")
	}
}

// TestSlow: a slow call is found for an hour, or until the slow log is emptied.
func TestSlow(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--enable-debug-command", "yes")
	r.do("CONFIG SET slowlog-log-slower-than 50000")
	r.do("DEBUG SLEEP 0.1")
	r.do("CONFIG SET slowlog-log-slower-than 60000000")
	r.wants(patient, "redis.slow", "call")
	recent := patient
	recent.Slow = time.Nanosecond
	r.wants(recent, "", "")
	r.do("SLOWLOG RESET")
	r.wants(patient, "", "")
}

// TestEvicted: deleted keys are found although the policy has been mended since.
func TestEvicted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.do("SET a " + strings.Repeat("x", 1000))
	r.do("CONFIG SET maxmemory-policy allkeys-lru maxmemory 100kb")
	// It is refused once nothing is left to delete.
	_ = r.client.Do(waittest.Context(t), r.client.B().Set().Key("b").Value("y").Build())
	r.do("CONFIG SET maxmemory-policy noeviction maxmemory 1gb")
	r.wants(patient, "redis.evicted", " key")
	r.do("CONFIG RESETSTAT")
	r.wants(patient, "", "")
}

// TestSaving: a server that could not save is found until it can.
func TestSaving(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--enable-protected-configs", "yes")
	undo := redistest.FailSaves(t, r.Server)
	r.wants(patient, "redis.saving", "rdb_last_bgsave_status err")
	r.do("CONFIG SET dir " + t.TempDir())
	undo()
	r.do("BGSAVE")
	waittest.Until(t, "a save", func() bool { ids, _ := r.look(patient); return len(ids) == 0 })
}

// TestReplication: what keeps a failover from losing jobs, and addresses that lead to a replica.
func TestReplication(t *testing.T) {
	t.Parallel()
	servers := redistest.NewWithReplicas(t, 2, redistest.AppendOnly("everysec"), redistest.Args(right...))
	r, replica := with(t, servers.Server), with(t, servers.Replicas[0])
	r.wants(patient, "redis.backlog redis.min_replicas", "(min-replicas-to-write 0)")
	r.do("CONFIG SET repl-backlog-size 256mb")
	r.do("CONFIG SET min-replicas-to-write 1")
	r.wants(patient, "", "")
	replica.wants(patient, "redis.role", "its master is 127.0.0.1")

	known := func() (ids []string) {
		found, err := Look(waittest.Context(t), []Server{{replica.Addrs()[0], replica.client, true}}, patient)
		if err != nil {
			t.Fatal(err)
		}
		for i := range found {
			ids = append(ids, found[i].ID)
		}
		return ids
	}
	if ids := known(); len(ids) > 0 {
		t.Errorf("found %v at a replica that its master named; want nothing", ids)
	}
	r.Kill()
	waittest.Until(t, "the replica to notice", func() bool { return slices.Equal(known(), []string{"redis.link"}) },
		func() any { return known() })
}

// TestCoverage: it matters on a cluster alone.
func TestCoverage(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(freePort(t)))
	r.wants(patient, "redis.coverage", "(cluster-require-full-coverage yes)")
	r.do("CONFIG SET cluster-require-full-coverage no")
	r.wants(patient, "", "")
}

// TestTimes: the time of a call is compared with the limit, and a clock with the clock here.
func TestTimes(t *testing.T) {
	t.Parallel()
	s, set := redistest.NewWithClock(t, redistest.AppendOnly("everysec"), redistest.Args(right...))
	r := with(t, s)
	r.wants(patient, "", "")
	r.wants(Config{Latency: 1, Clock: time.Minute}, "redis.latency", " from here)")
	set(time.Hour)
	r.wants(patient, "redis.clock", " ahead)")
	set(0)
	r.wants(patient, "", "")
}

// TestHugepages: what the kernel says of a server here, which switches huge pages off unless told
// otherwise. A process of another name with the number is not the server.
func TestHugepages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ disable, kernel, comm, want string }{
		{"no", "[always] madvise never", "redis-server\n", "redis.hugepages"},
		{"no", "always [madvise] never", "redis-server\n", ""},
		{"no", "[always] madvise never", "vi\n", ""},
		{"yes", "[always] madvise never", "redis-server\n", ""},
	} {
		r := newRig(t, "--disable-thp", c.disable)
		proc := fmt.Sprintf("proc/%d/", r.Process().PID())
		status, err := os.ReadFile("/" + proc + "status")
		if err != nil || !strings.Contains(string(status), "THP_enabled:") {
			t.Skip("this kernel does not tell whether a process gets huge pages")
		}
		cfg := patient
		cfg.Root = fstest.MapFS{
			"sys/kernel/mm/transparent_hugepage/enabled": {Data: []byte(c.kernel)},
			proc + "status": {Data: status}, proc + "comm": {Data: []byte(c.comm)},
		}
		if strings.Contains(c.kernel, "[always]") && c.disable == "yes" && strings.Contains(string(status), "THP_enabled:\t1") {
			continue // the server found them off at its start, and did not ask
		}
		r.wants(cfg, c.want, "")
	}
}

// TestRefused: what a user may not read is named, and is no finding.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.do("CONFIG SET timeout 5")
	r.do("ACL SETUSER few on >secret ~* &* +@all -config -slowlog")
	few := r.Client(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "few", "secret" })
	found, err := Look(waittest.Context(t), []Server{{Addr: r.Addrs()[0], Client: few}}, patient)
	unchecked, ok := err.(finding.Unchecked) //nolint:errorlint // Look promises the type
	if len(found) > 0 || !ok || len(unchecked) != 2 || !strings.Contains(unchecked[0], "refuses CONFIG GET") ||
		!strings.Contains(unchecked[1], "refuses SLOWLOG GET") {
		t.Errorf("found %v, not checked %q; want nothing, and CONFIG GET and SLOWLOG GET", found, err)
	}
}

// TestUntold: a setting that a server does not have is named, once.
func TestUntold(t *testing.T) {
	t.Parallel()
	f := facts{addr: "a:1", info: map[string]string{"aof_enabled": "1", "role": "master"}, config: map[string]string{"timeout": "0"}}
	for range 2 {
		for i := range checks {
			if got := checks[i].wrong(&f); got != "" {
				t.Errorf("%s: %q; want nothing", checks[i].id, got)
			}
		}
	}
	want := "[redis at a:1 does not tell [appendfsync client-output-buffer-limit no-appendfsync-on-rewrite tcp-keepalive]: " +
		"compare by hand with docs/redis.md#settings]"
	if got := fmt.Sprint([]string(notChecked([]*facts{&f}))); got != want {
		t.Errorf("not checked %s; want %s", got, want)
	}
}

// TestSilent: a server that is gone is found, and the others are checked.
func TestSilent(t *testing.T) {
	t.Parallel()
	dead, r := newRig(t), newRig(t)
	r.do("CONFIG SET timeout 5")
	dead.Kill()
	ctx, cancel := context.WithTimeout(waittest.Context(t), 2*time.Second)
	defer cancel()
	found, err := Look(ctx, []Server{
		{Addr: dead.Addrs()[0], Client: dead.client}, {Addr: r.Addrs()[0], Client: r.client},
	}, patient)
	if err != nil || len(found) != 2 || found[0].ID != silent || found[0].Severity != finding.Critical || found[1].ID != "redis.idle" {
		t.Errorf("found %+v, %v; want the dead server, and the setting of the other one", found, err)
	}
}

// TestSections: each check leads to a section of the documentation.
func TestSections(t *testing.T) {
	t.Parallel()
	for i := range checks {
		if c := &checks[i]; !hasSection(t, c.docs) {
			t.Errorf("%s leads to %s; want a section that is there", c.id, c.docs)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := redisserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// headings finds the headings of a page.
var headings = regexp.MustCompile(`(?m)^#+ (.*)$`)

// hasSection reports whether a page has the section that address#section names.
func hasSection(t *testing.T, address string) bool {
	t.Helper()
	file, section, _ := strings.Cut(address, "#")
	page, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, heading := range headings.FindAllStringSubmatch(string(page), -1) {
		if strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-") == section {
			return true
		}
	}
	return false
}
