//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// before serves what to serves, after hook was called.
func before(t *testing.T, to func(*http.Request) string, hook func(*http.Request)) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: to(r.In)})
	}, ErrorLog: zap.NewStdLog(zap.NewNop())}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hook(r)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// longIDs are more than one chunk.
func longIDs() (text string, n int) {
	line := strings.Repeat("x", 200) + "\n"
	var b strings.Builder
	for ; b.Len() <= chunk; n++ {
		b.WriteString(strconv.Itoa(n) + line)
	}
	return b.String(), n
}

// TestListsImportGoesOn: an import that SIGINT ends within the upload goes on where it was, if the
// file is the same.
func TestListsImportGoesOn(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	text, n := longIDs()
	file := listFile(t, "vip.txt", text)
	second, release := make(chan struct{}), make(chan struct{})
	var puts atomic.Int64
	proxy := before(t, func(*http.Request) string { return l.server.Addr() }, func(r *http.Request) {
		if r.Method == http.MethodPut && puts.Add(1) == 2 {
			close(second)
			<-release
		}
	})
	cmd := exec.Command(os.Args[0], "--server", proxy, "lists", "import", "vip", file, "--switch")
	cmd.Env = append(os.Environ(), asSchedctl+"=1")
	var stderr buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	soon(t, second, "the second chunk")
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	close(release)
	if code := cmd.ProcessState.ExitCode(); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	found := regexp.MustCompile(`this goes on: schedctl (--server \S+ lists import vip \S+ --upload (\S+))`).FindStringSubmatch(stderr.String())
	if found == nil {
		t.Fatal(stderr.String())
	}
	changed := listFile(t, "vip.txt", "y"+text[1:])
	l.ctl(t, "lists", "import", "vip", changed, "--upload", found[2]).expect(t, exitFailure, "is not the file whose first")
	l.ctl(t, "lists", "import", "other", file, "--upload", found[2]).expect(t, exitUsage, "is of list vip")
	var u server.ListUpload
	must(t, json.Unmarshal([]byte(l.ctl(t, "lists", "uploads", "show", found[2], "-o", "json").expect(t, exitOK).out), &u))
	if u.Bytes < chunk {
		t.Errorf("the upload has %d bytes, expected those of the first chunk", u.Bytes)
	}
	command(t, "", strings.Fields(found[1])...).expect(t, exitOK, "it serves")
	command(t, "", strings.Fields(found[1])...).expect(t, exitOK, "it serves")
	for _, other := range []string{changed, listFile(t, "vip.txt", text+"more\n")} {
		l.ctl(t, "lists", "import", "vip", other, "--upload", found[2]).expect(t, exitFailure, "is not the file whose first")
	}
	if got := puts.Load(); got != 3 && u.Bytes == chunk {
		t.Errorf("%d chunks were sent, expected the first, the one that was cut, and that again", got)
	}
	var count struct{ Count int }
	must(t, json.Unmarshal([]byte(l.ctl(t, "lists", "count", "vip", "-o", "json").out), &count))
	if count.Count != n {
		t.Errorf("%d ids, expected %d", count.Count, n)
	}
}

// TestListsImportFollowsItsReplica: behind a balancer an import goes on at the replica that has the
// upload; other commands name it.
func TestListsImportFollowsItsReplica(t *testing.T) {
	t.Parallel()
	l := start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := listener.Addr().String()
	must(t, listener.Close())
	cfg := config.DefaultReplica()
	cfg.Listen, cfg.ReplicaID, cfg.Advertise, cfg.Lists.Dir = addr, "r2", "http://"+addr, t.TempDir()
	cfg.Redis.URL, cfg.Redis.KeyPrefix, cfg.Locks.KeyPrefix = l.url, l.prefix, l.prefix
	cfg.Registry.V1 = config.RegistryV1{Enabled: true, KeyPrefix: l.prefix + ":old"}
	second := replica.New(cfg, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), prometheus.NewRegistry())
	must(t, second.Start(t.Context()))
	t.Cleanup(func() {
		ctx := waittest.Context(t)
		must(t, second.Stop(ctx))
	})
	proxy := before(t, func(r *http.Request) string {
		if strings.HasPrefix(r.URL.Path, "/v1/list-uploads/") || strings.HasSuffix(r.URL.Path, "/rejects") {
			return l.server.Addr()
		}
		return addr
	}, func(*http.Request) {})
	ctl := func(args ...string) result {
		return command(t, "", append([]string{"--server", proxy, "lists"}, args...)...)
	}
	ctl("apply", "vip").expect(t, exitOK)
	ctl("import", "vip", listFile(t, "vip.txt", "a\n\n")).expect(t, exitOK, "version 1 of list vip is ready")
	ctl("rejects", "vip", "1").expect(t, exitFailure, "not_found", "the upload is on the replica at http://"+addr)
	id := strings.Fields(strings.Split(ctl("uploads", "ls", "vip").expect(t, exitOK).out, "\n")[1])[0]
	ctl("import", "vip", "/dev/null", "--upload", id).expect(t, exitFailure, "http://"+addr)
}

// TestListsImportStaysEncrypted: what was to go by https goes to no replica in clear text.
func TestListsImportStaysEncrypted(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked in clear text") }))
	t.Cleanup(plain.Close)
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":"not_found","field":"upload","message":"elsewhere"}`))
	}))
	t.Cleanup(front.Close)
	api, err := newAPIClient(front.URL, "secret", client.TLS{})
	must(t, err)
	api.http = front.Client()
	a := &app{environment: &environment{ctx: t.Context()}, api: api, token: "secret"}
	c := &listsImportCmd{home: plain.URL}
	if err := c.ask(a, http.MethodGet, uploadPath("u"), nil, nil, nil); err == nil || !strings.Contains(err.Error(), "neither token nor file goes there") {
		t.Error(err)
	}
}

// TestListsImportWithoutItsSwitch: an import that was to switch, and did not, has failed.
func TestListsImportWithoutItsSwitch(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	file := listFile(t, "vip.csv", "a\nb,soon\n")
	l.ctl(t, "lists", "import", "vip", file).expect(t, exitOK, "it does not serve: 1 line was rejected")
	l.ctl(t, "lists", "import", "vip", file, "--switch").expect(t, exitFailure, "version 2 of list vip is ready", "it does not serve: 1 line was rejected")
	l.ctl(t, "lists", "import", "vip", file, "--switch", "-o", "json").expect(t, exitFailure, `"state": "ready"`, "it does not serve")
	l.ctl(t, "lists", "import", "vip", listFile(t, "fine.csv", "a\n"), "-o", "json").expect(t, exitOK)
}

// TestListsImportRepeats: a connection that breaks is made again, a few times; then the import says
// how it goes on.
func TestListsImportRepeats(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	file := listFile(t, "it's vip.txt", "a\n")
	var left atomic.Int64
	left.Store(repeats + 1)
	proxy := before(t, func(*http.Request) string { return l.server.Addr() }, func(r *http.Request) {
		if r.Method == http.MethodPut && left.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
	})
	failed := command(t, "", "--server", proxy, "lists", "import", "vip", file)
	failed.expect(t, exitFailure, "cannot reach the scheduler", "for a day this goes on: schedctl --server "+proxy+" lists import vip "+quoted(file)+" --upload ")
	left.Store(2)
	id := failed.err[strings.LastIndex(failed.err, " ")+1:]
	command(t, "", "--server", proxy, "lists", "import", "vip", file, "--upload", strings.TrimSpace(id)).expect(t, exitOK, "version 1 of list vip is ready")
}

// TestListsImportInterruptedInTheBuild: build and switch do not end with the command.
func TestListsImportInterruptedInTheBuild(t *testing.T) {
	t.Parallel()
	l := start(t)
	for list, c := range map[string]struct{ path, text string }{
		"vip":   {"/v1/list-uploads/", "the replica goes on with the build, and will switch; `schedctl lists cancel vip` ends it"},
		"other": {"/v1/lists/other", "the replica goes on with the switch; `schedctl lists cancel other` ends it"},
	} {
		l.ctl(t, "lists", "apply", list).expect(t, exitOK)
		ctx, interrupt := context.WithCancel(t.Context())
		proxy := before(t, func(*http.Request) string { return l.server.Addr() }, func(r *http.Request) {
			if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, c.path) {
				interrupt()
				<-r.Context().Done()
			}
		})
		var out buffer
		code := run([]string{"--server", proxy, "lists", "import", list, listFile(t, "vip.txt", "a\n"), "--switch"}, &environment{ctx: ctx, out: &out, err: &out})
		result{code, "", out.String()}.expect(t, exitFailure, c.text)
		if strings.Contains(out.String(), "jobs") {
			t.Error(out.String())
		}
	}
}

// TestListsImportUnpublished: an import says why its version does not serve.
func TestListsImportUnpublished(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"name": "vip"}`
		if strings.HasPrefix(r.URL.Path, "/v1/list-uploads/") {
			answer = `{"list": "vip", "state": "ready", "bytes": 2, "crc32c": 163439259, "switch": true, "version": {"number": 2}, "report": {}, "unpublished": "it is frozen"}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	command(t, "", "--server", server.URL, "lists", "import", "vip", listFile(t, "vip.txt", "a\n"), "--upload", "one").
		expect(t, exitFailure, "did not switch to version 2: it is frozen; `schedctl lists switch vip 2` tries again")
}
