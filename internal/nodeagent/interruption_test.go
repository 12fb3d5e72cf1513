package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/replica/config"
)

func newTestLookout(t *testing.T, cfg Interruption) (*lookout, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	l, err := newLookout(cfg, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l, logs
}

// expect looks once. An empty want means that there is no notice.
func (l *lookout) expect(t *testing.T, when string, there bool, want string) {
	t.Helper()
	n, err := l.look(t.Context())
	if err != nil || n.there != there || n.shown() != want {
		t.Errorf("%s: %+v, %v; want a notice: %t, with %q", when, n, err, there, want)
	}
}

// TestNoticeFile: a file is a notice while it is there, also an empty one.
func TestNoticeFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "notice")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, _ := newTestLookout(t, Interruption{File: file})
	l.expect(t, "without a file", false, "")
	write("")
	l.expect(t, "with an empty file", true, "")
	write("the rack\n is moved\x00\xff")
	l.expect(t, "with a text", true, "the rack is moved\x00\uFFFD")
	write(strings.Repeat("é", 300))
	l.expect(t, "with a long text", true, strings.Repeat("é", shownNotice)+"…")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	l.expect(t, "without the file again", false, "")

	l, _ = newTestLookout(t, Interruption{File: file, Match: "(?i)terminate"})
	write("rebalance")
	l.expect(t, "with another text", false, "")
	write("Terminate at 8")
	l.expect(t, "with the text", true, "Terminate at 8")
}

// TestNoticeThatCannotBeRead: a look that fails says neither yes nor no, and never blocks.
func TestNoticeThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo, large := filepath.Join(dir, "fifo"), filepath.Join(dir, "large")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(large, make([]byte, maxNotice+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/500":
			w.WriteHeader(http.StatusInternalServerError)
		case "/moved":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/large":
			_, _ = w.Write(make([]byte, maxNotice+1))
		case "/hangs":
			<-release
		case "/empty":
		default:
			_, _ = w.Write([]byte("ok"))
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	for what, cfg := range map[string]Interruption{
		"no regular file":                              {File: fifo},
		dir + " is no regular file":                    {File: dir},
		"more than 65536 bytes":                        {File: large},
		"more than 65536 bytes ":                       {URL: server.URL + "/large"},
		"interruption.url has status 500":              {URL: server.URL + "/500"},
		"interruption.url has status 302":              {URL: server.URL + "/moved"},
		"context deadline exceeded":                    {URL: server.URL + "/hangs"},
		"connection refused":                           {URL: "http://127.0.0.1:1/secret"},
		"interruption.token.url has status 500":        {URL: server.URL, Token: InterruptionToken{URL: server.URL + "/500", Header: "X-Token"}},
		"the answer of interruption.token.url is no t": {URL: server.URL, Token: InterruptionToken{URL: server.URL + "/empty", Header: "X-Token"}},
	} {
		l, logs := newTestLookout(t, cfg)
		l.timeout = 50 * time.Millisecond
		if !strings.HasPrefix(what, "context deadline") {
			l.timeout = time.Minute
		}
		_, err := l.look(t.Context())
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(what)) || strings.Contains(err.Error(), "/secret") {
			t.Errorf("%+v: %v; want %q, and no URL", cfg, err, what)
		}
		if _, err = l.look(t.Context()); err == nil || logs.FilterMessage("interruption.look_failed").Len() != 1 {
			t.Errorf("%+v: %d lines for two looks, error %v; want one line", cfg, logs.Len(), err)
		}
	}
	l, logs := newTestLookout(t, Interruption{URL: server.URL + "/hangs"})
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := l.look(ended); err == nil || logs.Len() != 0 {
		t.Errorf("%v, %d lines; want an error of the agent's end, which is no failure", err, logs.Len())
	}
}

// metadata is a metadata service of a cloud on this machine.
type metadata struct {
	*httptest.Server
	notice atomic.Pointer[string] // nil while there is none
	token  atomic.Pointer[string] // the valid one
	puts   atomic.Int64
}

// The texts are as the clouds document them.
const (
	awsNotice = `{"action": "terminate", "time": "2026-09-18T08:22:00Z"}`
	azureNone = `{"DocumentIncarnation":1,"Events":[]}`
	azureRun  = `{"DocumentIncarnation":2,"Events":[{"EventId":"602d9444","EventType":"Freeze","ResourceType":"VirtualMachine",` +
		`"Resources":["gpu-7"],"EventStatus":"Scheduled","NotBefore":"Mon, 19 Sep 2026 18:29:47 GMT"}]}`
	azureNotice = `{"DocumentIncarnation":3,"Events":[{"EventId":"602d9445","EventType":"Preempt","ResourceType":"VirtualMachine",` +
		`"Resources":["gpu-7"],"EventStatus":"Scheduled","NotBefore":"Mon, 19 Sep 2026 18:29:47 GMT"}]}`
)

func serveMetadata(t *testing.T) *metadata {
	t.Helper()
	m := &metadata{}
	answer := func(w http.ResponseWriter, otherwise string) {
		if n := m.notice.Load(); n != nil {
			otherwise = *n
		}
		if otherwise == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(otherwise))
	}
	refuse := func(w http.ResponseWriter, r *http.Request, status int, header, want string) bool {
		if r.Header.Get(header) == want {
			return false
		}
		w.WriteHeader(status)
		return true
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		if refuse(w, r, http.StatusBadRequest, "X-aws-ec2-metadata-token-ttl-seconds", "21600") {
			return
		}
		token := fmt.Sprintf("token-%d==", m.puts.Add(1))
		m.token.Store(&token)
		_, _ = w.Write([]byte(token))
	})
	mux.HandleFunc("GET /latest/meta-data/spot/instance-action", func(w http.ResponseWriter, r *http.Request) {
		if token := m.token.Load(); token == nil || refuse(w, r, http.StatusUnauthorized, "X-aws-ec2-metadata-token", *token) {
			return
		}
		answer(w, "")
	})
	mux.HandleFunc("GET /computeMetadata/v1/instance/preempted", func(w http.ResponseWriter, r *http.Request) {
		if !refuse(w, r, http.StatusForbidden, "Metadata-Flavor", "Google") {
			answer(w, "FALSE")
		}
	})
	mux.HandleFunc("GET /metadata/scheduledevents", func(w http.ResponseWriter, r *http.Request) {
		if !refuse(w, r, http.StatusBadRequest, "Metadata", "true") && r.URL.Query().Get("api-version") == "2020-07-01" {
			answer(w, azureNone)
		}
	})
	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.Close)
	return m
}

func (m *metadata) say(text string) { m.notice.Store(&text) }

// example returns the example of docs/nodeagent.md with this address, with the host of m in place
// of the cloud's.
func (m *metadata) example(t *testing.T, address string) Interruption {
	t.Helper()
	page, err := os.ReadFile("../../docs/nodeagent.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(interruption:\n.*?)```").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(block[1], address) {
			continue
		}
		text := regexp.MustCompile(`http://(169\.254\.169\.254|metadata\.google\.internal)`).ReplaceAllString(block[1], m.URL)
		file := filepath.Join(t.TempDir(), "nodeagent.yaml")
		if err := os.WriteFile(file, []byte(text+"services: [{name: cat, command: {argv: [cat]}}]\nnode: {id: n}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(config.Options{File: file})
		if err != nil {
			t.Fatalf("the example of %s: %v", address, err)
		}
		return cfg.Interruption
	}
	t.Fatalf("docs/nodeagent.md has no example of %s", address)
	return Interruption{}
}

// TestExamplesOfClouds: each example of the page finds the notice of its cloud, and nothing before.
func TestExamplesOfClouds(t *testing.T) {
	t.Parallel()
	for address, of := range map[string]struct {
		others []string // texts that are no notice
		notice string
	}{
		"spot/instance-action": {notice: awsNotice},
		"instance/preempted":   {others: []string{"FALSE"}, notice: "TRUE"},
		"scheduledevents":      {others: []string{azureNone, azureRun}, notice: azureNotice},
	} {
		m := serveMetadata(t)
		l, _ := newTestLookout(t, m.example(t, address))
		l.timeout = time.Minute
		l.expect(t, address, false, "")
		for _, text := range of.others {
			m.say(text)
			l.expect(t, address+" with "+text, false, "")
		}
		m.say(of.notice)
		n, err := l.look(t.Context())
		if err != nil || n.text != of.notice {
			t.Errorf("%s: %+v, %v; want the notice %s", address, n, err, of.notice)
		}
		m.notice.Store(nil)
		l.expect(t, address+" once it is withdrawn", false, "")
	}
}

// TestNoticeToken: one token is for many looks, and one that ends is replaced within a look.
func TestNoticeToken(t *testing.T) {
	t.Parallel()
	m := serveMetadata(t)
	l, logs := newTestLookout(t, m.example(t, "spot/instance-action"))
	l.timeout = time.Minute
	for range 3 {
		l.expect(t, "with the first token", false, "")
	}
	if n := m.puts.Load(); n != 1 {
		t.Errorf("%d tokens for three looks; want 1", n)
	}
	other := "of another time"
	m.token.Store(&other)
	m.say(awsNotice)
	l.expect(t, "with a token that has ended", true, awsNotice)
	if n := m.puts.Load(); n != 2 || logs.Len() != 0 {
		t.Errorf("%d tokens, %d lines in the log; want 2 and none", n, logs.Len())
	}
}

func TestInterruptionConfig(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]string{
		"interruption.url is set beside file, expected one of them":                           "interruption={file: /a, url: 'http://b'}",
		"interruption.url is not a URL, expected one such as http://127.0.0.1:8000/notice":    "interruption.url=b",
		"interruption.token.url is set without interruption.url, expected both":               "interruption.token={url: 'http://b', header: T}",
		"interruption.token.header and interruption.token.url go together":                    "interruption={url: 'http://b', token: {header: T}}",
		`interruption.token.header has "a b", which cannot be sent as a header`:               "interruption={url: 'http://b', token: {url: 'http://b', header: a b}}",
		`interruption.token.headers has "a b", which cannot be sent as a header`:              "interruption={url: 'http://b', token: {url: 'http://b', header: a, headers: {a b: c}}}",
		`interruption.headers has "a b", which cannot be sent as a header`:                    "interruption={url: 'http://b', headers: {a b: c}}",
		"interruption.match is no regular expression: error parsing regexp: missing closing ": "interruption={file: /a, match: '('}",
		"interruption.interval is 10ms, expected 100ms to 1m":                                 "interruption={file: /a, interval: 10ms}",
		"interruption.stop_timeout is 25h, expected 1ms to 24h":                               "interruption={file: /a, stop_timeout: 25h}",
	} {
		key, value, _ := strings.Cut(set, "=")
		_, err := Load(config.Options{Flags: []config.Flag{{Path: key, Value: value}, {Path: "services", Value: "[{name: cat, command: {argv: [cat]}}]"}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", set, err, want)
		}
	}
}
