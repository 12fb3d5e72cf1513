package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"regexp"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// Defaults of Interruption.
const (
	DefaultInterruptionInterval    = 5 * time.Second
	DefaultInterruptionStopTimeout = 20 * time.Second
)

const (
	// lookTimeout bounds one look for a notice, with a token for it.
	lookTimeout = 2 * time.Second
	// maxNotice bounds the file, and the body of an answer.
	maxNotice = 64 << 10
	// maxNoticeToken bounds the answer with a token.
	maxNoticeToken = 4 << 10
	// shownNotice is the size of the part of a notice that is logged.
	shownNotice              = 200
	minInterruptionInterval  = 100 * time.Millisecond
	maxInterruptionInterval  = time.Minute
	interruptionReasonPrefix = "interruption notice: "
)

// Interruption says where the machine's owner announces that the machine goes away.
type Interruption struct {
	// A file that is there while there is a notice. Set this or `url`.
	File string `koanf:"file"`
	// A URL that is asked by a `GET`: 404 and 410 mean that there is no notice.
	URL string `koanf:"url" secret:"true"`
	// Sent with each request to `url`.
	Headers map[string]string `koanf:"headers" secret:"true"`
	// Where a token for requests to `url` comes from.
	Token InterruptionToken `koanf:"token"`
	// A regular expression (RE2) that a file or an answer must have to be a notice. Unset: each
	// one is, also an empty one.
	Match string `koanf:"match"`
	// How often the agent looks, 100ms to 1m.
	Interval time.Duration `koanf:"interval"`
	// How long running jobs may go on after a notice, in place of the agent's `stop_timeout`, up
	// to 24h. Then they are handed back. This and the longest `kill_grace` must fit into the time
	// that the machine has left.
	StopTimeout time.Duration `koanf:"stop_timeout"`
}

// InterruptionToken says how the agent gets a token. The zero value means that none is needed.
type InterruptionToken struct {
	// A URL that is asked by a `PUT` at first, and after each answer 401 of `interruption.url`.
	URL string `koanf:"url"`
	// Sent with the `PUT`.
	Headers map[string]string `koanf:"headers"`
	// The header of requests to `interruption.url` that has the token.
	Header string `koanf:"header"`
}

func (i *Interruption) enabled() bool { return i.File != "" || i.URL != "" }

func (i *Interruption) validate(p *config.Problems) {
	const at = "interruption"
	if i.File != "" && i.URL != "" {
		p.Addf(at+".url", "is set beside file, expected one of them")
	}
	if i.URL != "" && !httpURL(i.URL) {
		p.Addf(at+".url", "is not a URL, expected one such as http://127.0.0.1:8000/notice")
	}
	p.Headers(at+".headers", i.Headers)
	i.Token.validate(at+".token", p)
	if i.Token.URL != "" && i.URL == "" {
		p.Addf(at+".token.url", "is set without interruption.url, expected both")
	}
	if _, err := regexp.Compile(i.Match); err != nil {
		p.Addf(at+".match", "is no regular expression: %v", err)
	}
	p.DurationBetween(at+".interval", i.Interval, minInterruptionInterval, maxInterruptionInterval)
	p.DurationBetween(at+".stop_timeout", i.StopTimeout, minDuration, maxTimeout)
}

func (t *InterruptionToken) validate(at string, p *config.Problems) {
	if t.URL != "" && !httpURL(t.URL) {
		p.Addf(at+".url", "is not a URL, expected one such as http://127.0.0.1:8000/token")
	}
	p.Headers(at+".headers", t.Headers)
	if (t.URL == "") != (t.Header == "") {
		p.Addf(at+".header", "and %s.url go together, expected both or none", at)
	}
	if t.Header != "" {
		p.Headers(at+".header", map[string]string{t.Header: ""})
	}
}

// notice is what a look found. The zero value means that there is no notice.
type notice struct {
	there bool
	text  string
}

// shown returns the beginning of the notice, for logs.
func (n *notice) shown() string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(n.text, "\uFFFD")), " ")
	if runes := []rune(text); len(runes) > shownNotice {
		text = string(runes[:shownNotice]) + "…"
	}
	return text
}

// lookout looks for notices. It is for one goroutine.
type lookout struct {
	cfg    Interruption
	match  *regexp.Regexp
	client *http.Client
	token  string // "" before the first one
	// timeout is lookTimeout, except in tests.
	timeout time.Duration
	outage  *logging.Outage
}

func newLookout(cfg Interruption, log *zap.Logger) (*lookout, error) {
	match, err := regexp.Compile(cfg.Match)
	if err != nil {
		return nil, fmt.Errorf("interruption.match: %w", err)
	}
	return &lookout{
		cfg: cfg, match: match, timeout: lookTimeout,
		outage: logging.NewOutage(log, "interruption.look_failed", "interruption.look_recovered"),
		client: &http.Client{
			// No proxy: addresses of metadata are this machine's.
			Transport: &http.Transport{
				DialContext: (&net.Dialer{Timeout: lookTimeout}).DialContext, MaxResponseHeaderBytes: maxHeaderBytes,
			},
			// A redirect leads to a server that is not configured.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func (l *lookout) close() { l.client.CloseIdleConnections() }

// look returns the present notice. An error, which is logged, tells nothing about it.
func (l *lookout) look(ctx context.Context) (notice, error) {
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	read := l.ask
	if l.cfg.File != "" {
		read = l.readFile
	}
	n, err := read(limited)
	if err != nil {
		if ctx.Err() == nil { // else the agent ends
			l.outage.Failed(err)
		}
		return notice{}, err
	}
	l.outage.Over()
	if n.there && !l.match.MatchString(n.text) {
		return notice{}, nil
	}
	return n, nil
}

func (l *lookout) readFile(context.Context) (notice, error) {
	info, err := os.Stat(l.cfg.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notice{}, nil
	case err != nil:
		return notice{}, err
	case !info.Mode().IsRegular(): // a pipe could block
		return notice{}, fmt.Errorf("%s is no regular file", l.cfg.File)
	}
	f, err := os.Open(l.cfg.File)
	if errors.Is(err, fs.ErrNotExist) {
		return notice{}, nil
	}
	if err != nil {
		return notice{}, err
	}
	defer f.Close()
	return readNotice(f)
}

func readNotice(r io.Reader) (notice, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxNotice+1))
	switch {
	case err != nil:
		return notice{}, err
	case len(text) > maxNotice:
		return notice{}, fmt.Errorf("there are more than %d bytes", maxNotice)
	}
	return notice{there: true, text: string(text)}, nil
}

// ask asks the URL, again with a new token if the first one is not taken any more.
func (l *lookout) ask(ctx context.Context) (notice, error) {
	known := l.token != ""
	n, status, err := l.askOnce(ctx)
	if err == nil && status == http.StatusUnauthorized && known && l.cfg.Token.URL != "" {
		l.token = ""
		n, status, err = l.askOnce(ctx)
	}
	switch {
	case err != nil:
		return notice{}, plainError(err)
	case status == http.StatusNotFound || status == http.StatusGone:
		return notice{}, nil
	case status < 200 || status > 299:
		if status == http.StatusUnauthorized {
			l.token = ""
		}
		return notice{}, fmt.Errorf("the answer of interruption.url has status %d", status)
	}
	return n, nil
}

func (l *lookout) askOnce(ctx context.Context) (n notice, status int, err error) {
	if l.cfg.Token.URL != "" && l.token == "" {
		if l.token, err = l.newToken(ctx); err != nil {
			return n, 0, err
		}
	}
	resp, err := l.send(ctx, http.MethodGet, l.cfg.URL, l.cfg.Headers)
	if err != nil {
		return n, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return n, resp.StatusCode, nil
	}
	n, err = readNotice(resp.Body)
	return n, resp.StatusCode, err
}

func (l *lookout) newToken(ctx context.Context) (string, error) {
	resp, err := l.send(ctx, http.MethodPut, l.cfg.Token.URL, l.cfg.Token.Headers)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return "", fmt.Errorf("the answer of interruption.token.url has status %d", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxNoticeToken))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", errors.New("the answer of interruption.token.url is no token")
	}
	return token, nil
}

// send sends a request. A GET has the token.
func (l *lookout) send(ctx context.Context, method, to string, headers map[string]string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, http.NoBody)
	if err != nil {
		return nil, err
	}
	for name, value := range headers {
		if textproto.CanonicalMIMEHeaderKey(name) == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	if method == http.MethodGet && l.token != "" {
		req.Header.Set(l.cfg.Token.Header, l.token)
	}
	return l.client.Do(req)
}

// plainError returns the error without the URL, which may hold a secret.
func plainError(err error) error { return errors.New(plain(err)) }
