package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/tlsfile"
)

const (
	// callTimeout bounds one request without the wait that it asks for. With several servers each
	// has half of it, which is more than the 5 s after which a replica reports why it cannot
	// answer.
	callTimeout = 15 * time.Second
	// maxAnswer bounds an answer; a page of jobs holds their results.
	maxAnswer = 1 << 30
	// maxPage is the largest number of jobs that the API puts on one page.
	maxPage = 500
)

// apiClient calls the HTTP API of a replica. It is for one goroutine.
type apiClient struct {
	base *url.URL
	// others are tried in turn if base cannot be reached.
	others []*url.URL
	token  string
	// reason is sent with changes. warnLost is called after one that the audit does not have.
	reason   string
	warnLost func()
	// warnPlain is called before the token is sent.
	warnPlain func()
	http      *http.Client
	// timeout is callTimeout, except in tests.
	timeout time.Duration
}

// newAPIClient takes http://host:port, https://… or just host:port. Several are separated by
// commas.
func newAPIClient(servers, token string, files client.TLS) (*apiClient, error) {
	var bases []*url.URL
	for server := range strings.SplitSeq(servers, ",") {
		if server = strings.TrimSpace(server); !strings.Contains(server, "://") {
			server = "http://" + server
		}
		base, err := url.Parse(server)
		if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
			return nil, fmt.Errorf(
				"--server is %q, expected a URL such as http://127.0.0.1:7480, or several with commas between",
				withoutUser(server),
			)
		}
		if base.Scheme != "https" && files != (client.TLS{}) {
			return nil, fmt.Errorf(
				"--ca-file, --cert-file, --key-file or --server-name is set, and --server is %s, expected https://", base.Host,
			)
		}
		base.Path, base.RawQuery = strings.TrimRight(base.Path, "/"), ""
		bases = append(bases, base)
	}
	conf, err := tlsfile.Files(files).Config("")
	if err != nil {
		return nil, byFlag(err)
	}
	return &apiClient{
		base: bases[0], others: bases[1:], token: token, timeout: callTimeout, warnPlain: func() {}, warnLost: func() {},
		http: &http.Client{
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
				TLSClientConfig: conf,
			},
			// The token is for this server and no other.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// byFlag returns the error of a file with the name of its flag.
func byFlag(err error) error {
	bad, ok := errors.AsType[*freeslot.Error](err)
	if !ok {
		return err
	}
	flag := func(field string) string { return "--" + strings.ReplaceAll(field, "_", "-") }
	text := flag(bad.Field) + strings.TrimPrefix(bad.Message, bad.Field)
	return errors.New(strings.Replace(text, " and key_file ", " and "+flag("key_file")+" ", 1))
}

// withoutUser returns a text that is no URL without what may be a user and a password.
func withoutUser(server string) string {
	if i := strings.LastIndexByte(server, '@'); i >= 0 {
		return "xxxxx" + server[i:]
	}
	return server
}

// webSocketURL returns the same servers in the form for package client.
func (c *apiClient) webSocketURL() string {
	var list []string
	for _, base := range append([]*url.URL{c.base}, c.others...) {
		u := *base
		u.Scheme = "ws" + strings.TrimPrefix(u.Scheme, "http")
		u.Path += "/v1/ws"
		list = append(list, u.String())
	}
	return strings.Join(list, ",")
}

func (c *apiClient) close() { c.http.CloseIdleConnections() }

// call decodes the answer into out. Refusals are *freeslot.Error. wait is added to callTimeout.
// With three servers or more a call can take half of callTimeout for each. Names in path must be
// escaped.
func (c *apiClient) call(
	ctx context.Context, method, path string, query url.Values, content []byte, wait time.Duration, out any,
) error {
	ctx, cancel := context.WithTimeout(ctx, max(c.timeout, time.Duration(1+len(c.others))*c.timeout/2)+wait)
	defer cancel()
	var tried error
	for left := len(c.others); left >= 0; left-- {
		err := c.askFor(ctx, left, method, path, query, content, wait, out)
		if !canRepeat(method, err) {
			return err // the request may have been carried out, so no other replica gets it
		}
		if tried != nil {
			err = fmt.Errorf("%w; %w", tried, err)
		}
		tried = err
		if ctx.Err() != nil {
			break
		}
		if len(c.others) > 0 {
			c.next()
		}
	}
	return tried
}

// askFor does what ask does, within a share of the remaining time if other servers can be asked,
// too.
func (c *apiClient) askFor(
	ctx context.Context, others int, method, path string, query url.Values, content []byte, wait time.Duration, out any,
) error {
	limit := c.timeout + wait
	if deadline, ok := ctx.Deadline(); ok && others > 0 && method == http.MethodGet && wait == 0 {
		limit = time.Until(deadline) / time.Duration(others+1)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.ask(ctx, method, path, query, content, out)
}

// canRepeat reports whether another replica can be asked after err: nothing was sent, or the
// request only reads.
func canRepeat(method string, err error) bool {
	if !errors.As(err, new(*unreachableError)) {
		return false
	}
	opError, ok := errors.AsType[*net.OpError](err)
	return method == http.MethodGet || ok && opError.Op == "dial"
}

// ask calls one replica.
func (c *apiClient) ask(ctx context.Context, method, path string, query url.Values, content []byte, out any) error {
	resp, err := c.send(ctx, method, path, query, content)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return c.unreachable(err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return c.refusal(resp, data)
	}
	if err := pendingOf(resp.StatusCode, data); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s does not answer like a scheduler: %w", c.base.Redacted(), err)
	}
	return nil
}

// send sends a request to one replica. The caller closes the body of the answer.
func (c *apiClient) send(
	ctx context.Context, method, path string, query url.Values, content []byte,
) (*http.Response, error) {
	u := *c.base
	u.RawPath = u.EscapedPath() + path
	var err error
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return nil, err
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		c.warnPlain()
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.reason != "" && method != http.MethodGet {
		req.Header.Set(api.ReasonHeader, c.reason)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.Header.Get(api.AuditHeader) == api.NotRecorded && resp.StatusCode < http.StatusMultipleChoices {
		c.warnLost()
	}
	return resp, nil
}

// stream copies a long answer to out. It gives up if nothing comes for timeout.
func (c *apiClient) stream(
	ctx context.Context, path string, query url.Values, out io.Writer,
) (header, trailer http.Header, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(c.timeout, func() { cancel(errSilent) })
	defer idle.Stop()
	resp, err := c.send(ctx, http.MethodGet, path, query, nil)
	for range c.others {
		if err == nil || !canRepeat(http.MethodGet, err) {
			break
		}
		c.next()
		resp, err = c.send(ctx, http.MethodGet, path, query, nil)
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusMultipleChoices {
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return nil, nil, cmp.Or(err, c.refusal(resp, data))
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buffer)
		idle.Reset(c.timeout)
		if _, failed := out.Write(buffer[:n]); failed != nil {
			return nil, nil, failed
		}
		switch {
		case errors.Is(err, io.EOF):
			return resp.Header, resp.Trailer, nil
		case err != nil:
			return nil, nil, fmt.Errorf(
				"the answer was cut, and the replica's log says why: %w", cmp.Or(context.Cause(ctx), err),
			)
		}
	}
}

var errSilent = errors.New("nothing came for a while")

// next puts the next server in front.
func (c *apiClient) next() {
	c.base, c.others = c.others[0], append(c.others[1:len(c.others):len(c.others)], c.base)
}

func (c *apiClient) unreachable(err error) error {
	reason := err
	if urlError, ok := errors.AsType[*url.Error](err); ok {
		reason = urlError.Err
	}
	opError, ok := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && (!ok || opError.Op != "dial"):
		reason = errors.New("no answer in time")
	case ok:
		reason = dialed{opError}
	}
	return &unreachableError{base: c.base.Redacted(), reason: reason}
}

// unreachableError is returned for a replica that gave no answer.
type unreachableError struct {
	base   string
	reason error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf(
		"cannot reach the scheduler at %s: %v (set --server or FREESLOT_SERVER if it is elsewhere)", e.base, e.reason,
	)
}

func (e *unreachableError) Unwrap() error { return e.reason }

// dialed has only the cause's text, but unwraps to the whole error.
type dialed struct{ *net.OpError }

func (d dialed) Error() string { return d.Err.Error() }
func (d dialed) Unwrap() error { return d.OpError }

func (c *apiClient) refusal(resp *http.Response, data []byte) error {
	var e api.Error
	if json.Unmarshal(data, &e) != nil || e.Code == "" {
		return fmt.Errorf("%s does not answer like a scheduler: HTTP %s", c.base.Redacted(), resp.Status)
	}
	if e.Code == freeslot.CodeNotFound && c.base.Path != "" &&
		strings.HasPrefix(e.Message, "there is nothing at this path") {
		return fmt.Errorf(
			"%s is not where a scheduler's paths begin: leave %s out of --server (or FREESLOT_SERVER)", c.base.Redacted(),
			c.base.Path,
		)
	}
	return &freeslot.Error{
		Code: e.Code, Message: e.Message, Field: e.Field, Breakdown: e.Breakdown, Errors: e.Errors,
		RetryAfter: time.Duration(e.RetryAfterMS) * time.Millisecond,
	}
}

func (c *apiClient) job(ctx context.Context, id string) (freeslot.JobStatus, error) {
	var status freeslot.JobStatus
	err := c.call(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id), nil, nil, 0, &status)
	return status, err
}

// jobs follows the pages until there are limit jobs, or no more. silent lists the cells that did not
// answer the last one.
func (c *apiClient) jobs(
	ctx context.Context, query url.Values, limit int,
) (jobs []freeslot.JobStatus, silent []int, _ error) {
	jobs = []freeslot.JobStatus{}
	for {
		query.Set("limit", fmt.Sprint(min(limit-len(jobs), maxPage)))
		var page api.JobPage
		if err := c.call(ctx, http.MethodGet, "/v1/jobs", query, nil, 0, &page); err != nil {
			return nil, nil, err
		}
		jobs = append(jobs, page.Jobs...)
		if page.Cursor == "" || len(jobs) >= limit {
			return jobs[:min(len(jobs), limit)], page.Unreachable, nil
		}
		query.Set("cursor", page.Cursor)
	}
}

// nodes follows the pages of the nodes that match query.
func (c *apiClient) nodes(ctx context.Context, query url.Values) ([]api.NodeStatus, error) {
	nodes := []api.NodeStatus{}
	for {
		var page api.NodePage
		if err := c.call(ctx, http.MethodGet, "/v1/nodes", query, nil, 0, &page); err != nil {
			return nil, err
		}
		nodes = append(nodes, page.Nodes...)
		if page.Cursor == "" {
			return nodes, nil
		}
		query.Set("cursor", page.Cursor)
	}
}
