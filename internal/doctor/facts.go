package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/loopback"
)

const (
	// bareCalls is how many calls tell the time of one; odd, so that one is in the middle.
	bareCalls = 11
	// slowEntries is how many entries of the slow log are read.
	slowEntries = 32
	// slowest is how long a call may take. Shorter ones in the slow log are of no consequence.
	slowest = 50 * time.Millisecond
	// settingsPage is where a reader finds the settings.
	settingsPage = "docs/redis.md#settings"
)

// settings are the settings that the checks read.
var settings = []string{
	"appendfsync", "client-output-buffer-limit", "cluster-require-full-coverage", "min-replicas-to-write",
	"no-appendfsync-on-rewrite", "tcp-keepalive", "timeout",
}

// facts is what a server says of itself, and how it answers.
type facts struct {
	addr    string
	replica bool
	// err is why the server does not answer; the rest is then unknown.
	err error

	info      map[string]string
	config    map[string]string // nil if it is refused
	unchecked []string          // what could not be checked
	untold    []string          // settings and fields that are missing

	took    time.Duration // of a bare call
	latency time.Duration // Config.Latency
	// ahead is how far the server's clock is ahead of ours at least; negative if it is behind.
	ahead time.Duration
	clock time.Duration // Config.Clock
	slow  []slowCall    // the slow calls of Config.Slow, newest first
	// hugepages is true if the server runs here, and the kernel gives it huge pages.
	hugepages bool
}

// slowCall is an entry of the slow log.
type slowCall struct {
	command string
	took    time.Duration
}

// read asks a server. Its calls end with ctx.
func read(ctx context.Context, s *Server, cfg *Config) *facts {
	f := &facts{addr: s.Addr, replica: s.Replica, latency: cfg.Latency, clock: cfg.Clock}
	times := make([]time.Duration, bareCalls)
	for i := range times {
		began := time.Now()
		if err := s.Client.Do(ctx, s.Client.B().Ping().Build()).Error(); err != nil && !isAnswer(err) {
			f.err = err
			return f
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	f.took = times[bareCalls/2]
	f.readClock(ctx, s.Client)
	text, err := s.Client.Do(ctx, s.Client.B().Info().Build()).ToString()
	f.note("INFO", "settings, persistence and replication", err)
	f.info = Fields(text)
	config, err := s.Client.Do(ctx, s.Client.B().ConfigGet().Parameter(settings...).Build()).AsStrMap()
	f.note("CONFIG GET", "settings ("+settingsPage+")", err)
	if err == nil {
		f.config = config
	}
	f.readSlow(ctx, s.Client, cfg.Slow)
	f.hugepages = hugepages(cfg.Root, s.Addr, f.info["process_id"])
	return f
}

// isAnswer reports whether an error is an answer of a server.
func isAnswer(err error) bool { return errors.As(err, new(*rueidis.RedisError)) }

// note keeps an error of a command as something that could not be checked.
func (f *facts) note(command, about string, err error) {
	if err == nil {
		return
	}
	why := "does not answer"
	if isAnswer(err) {
		why = "refuses"
	}
	f.unchecked = append(
		f.unchecked, fmt.Sprintf("redis at %s %s %s (%v), so check %s by hand", f.addr, why, command, err, about),
	)
}

func (f *facts) readClock(ctx context.Context, client rueidis.Client) {
	before := time.Now()
	parts, err := client.Do(ctx, client.B().Time().Build()).AsStrSlice()
	after := time.Now()
	f.note("TIME", "its clock", err)
	if err != nil || len(parts) < 2 {
		return
	}
	seconds, _ := strconv.ParseInt(parts[0], 10, 64)
	micros, _ := strconv.ParseInt(parts[1], 10, 64)
	switch at := time.Unix(seconds, micros*1000); {
	case at.After(after):
		f.ahead = at.Sub(after)
	case at.Before(before):
		f.ahead = at.Sub(before)
	}
}

// readSlow reads the slow calls of the last time, by the clock here.
func (f *facts) readSlow(ctx context.Context, client rueidis.Client, since time.Duration) {
	entries, err := client.Do(ctx, client.B().SlowlogGet().Count(slowEntries).Build()).ToArray()
	f.note("SLOWLOG GET", "slow calls", err)
	for _, entry := range entries {
		parts, err := entry.ToArray()
		if err != nil || len(parts) < 4 {
			continue
		}
		at, _ := parts[1].AsInt64()
		micros, _ := parts[2].AsInt64()
		words, _ := parts[3].AsStrSlice()
		took := time.Duration(micros) * time.Microsecond
		if took < slowest || time.Since(time.Unix(at, 0).Add(-f.ahead)) > since || len(words) == 0 {
			continue
		}
		f.slow = append(f.slow, slowCall{strings.ToUpper(words[0]), took})
	}
}

// Fields returns the lines of an answer to INFO.
func Fields(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// setting returns the value of a setting; false if it is not told.
func (f *facts) setting(name string) (string, bool) {
	value, told := f.config[name]
	if !told && f.config != nil {
		f.untold = append(f.untold, name)
	}
	return value, told
}

// number returns a number of INFO; 0 if it is not told.
func (f *facts) number(name string) int64 {
	n, _ := strconv.ParseInt(f.info[name], 10, 64)
	return n
}

func (f *facts) cluster() bool { return f.info["cluster_enabled"] == "1" }

// master reports whether the server is a master.
func (f *facts) master() bool { return f.info["role"] == "master" }

// hugepages reports whether the server with this process id runs here and gets huge pages. It is
// false if that cannot be told.
func hugepages(root fs.FS, addr, pid string) bool {
	host, _, err := net.SplitHostPort(addr)
	if _, bad := strconv.Atoi(pid); bad != nil || err == nil && !loopback.Is(host) {
		return false
	}
	name, _ := fs.ReadFile(root, "proc/"+pid+"/comm")
	if program := strings.TrimSpace(string(name)); program != "redis-server" && program != "valkey-server" {
		return false // the number belongs to another process, such as outside of a container
	}
	kernel, _ := fs.ReadFile(root, "sys/kernel/mm/transparent_hugepage/enabled")
	status, _ := fs.ReadFile(root, "proc/"+pid+"/status")
	return bytes.Contains(kernel, []byte("[always]")) && bytes.Contains(status, []byte("THP_enabled:\t1"))
}
