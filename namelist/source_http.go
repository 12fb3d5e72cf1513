package namelist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	lists "github.com/freeslot/freeslot/internal/namelist"
)

// Bounds of answers, in bytes. An edit session can make one edit of 60,000 entries of up to
// 600 bytes.
const (
	smallAnswer = 1 << 20
	deltaAnswer = 64 << 20
	blockAnswer = 2 << 20
	// idAnswer is the size of an id with its expiry, in a list of all ids.
	idAnswer = 600
)

const (
	// pollWait is how long a replica waits for a change before it answers without one.
	pollWait = 25 * time.Second
	// connsPerReplica bounds connections: further checks wait for one, until their deadline.
	connsPerReplica = 64
	// checksPerServer bounds the requests for ids of one list server: while it hangs, each request
	// keeps a connection from other lists until its deadline.
	checksPerServer = connsPerReplica / 2
)

// httpSource reads lists from replicas.
type httpSource struct {
	cfg    Config
	bases  []string
	base   atomic.Uint32 // index into bases of the replica to ask, modulo their number
	client *http.Client
	// refused is true once a replica has refused a report.
	refused atomic.Bool

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	loops  sync.WaitGroup

	mu     sync.Mutex
	polls  []*poll                  // guarded by mu
	checks map[string]chan struct{} // guarded by mu; by list server: places for requests for ids
}

// poll is one long poll, for up to lists.LookLists lists.
type poll struct {
	mu    sync.Mutex
	heard map[string]func(lists.Event) // guarded by mu
	known map[string]lists.Mark        // guarded by mu
	// history identifies the server's data, as in the last answer.
	history string // guarded by mu
	// again ends the request under way because there are more lists; nil between requests.
	again context.CancelFunc // guarded by mu
}

func openHTTP(cfg Config) (source, error) {
	conf, err := cfg.Access.redis().TLS.Config("access")
	if err != nil {
		return nil, err
	}
	s := &httpSource{cfg: cfg, bases: basesOf(cfg.URL), checks: make(map[string]chan struct{}), client: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, ForceAttemptHTTP2: true,
			MaxConnsPerHost: connsPerReplica, MaxIdleConnsPerHost: connsPerReplica, IdleConnTimeout: time.Minute,
			// All requests share a connection: one silent request must not take the others with it.
			HTTP2: &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: 2 * time.Second},
		},
		// The token is for this server and no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// basesOf splits a URL into the URLs of replicas.
func basesOf(urls string) (bases []string) {
	for base := range strings.SplitSeq(urls, ",") {
		bases = append(bases, strings.TrimRight(strings.TrimSpace(base), "/"))
	}
	return bases
}

// checkURL returns what is wrong with the URLs of replicas. secure is true if all use TLS.
func checkURL(urls string) (secure bool, err error) {
	secure = true
	for _, base := range basesOf(urls) {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return false, errors.New("expected http://host:port or https://host:port, or several with commas between")
		}
		secure = secure && u.Scheme == "https"
	}
	return secure, nil
}

func (s *httpSource) close() {
	s.cancel()
	s.loops.Wait()
	s.client.CloseIdleConnections()
}

// call makes a request, and returns an answer of at most most bytes. With a body it is a POST. All
// requests can be repeated: if a replica fails, the next one is asked, and later calls begin with
// that. Refusals are *freeslot.Error.
func (s *httpSource) call(ctx context.Context, path string, body any, most int64) (got []byte, err error) {
	for range s.bases {
		at := s.base.Load()
		got, err = s.callOnce(ctx, s.bases[int(at)%len(s.bases)]+path, body, most)
		if code := freeslot.CodeOf(err); code != freeslot.CodeInternal && code != freeslot.CodeUnavailable ||
			ctx.Err() != nil {
			break
		}
		s.base.CompareAndSwap(at, at+1)
	}
	return got, err
}

func (s *httpSource) callOnce(ctx context.Context, target string, body any, most int64) ([]byte, error) {
	method, content := http.MethodGet, []byte(nil)
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header["X-Idempotency-Key"] = nil // net/http then repeats the request if a kept connection is closed
	if s.cfg.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.cfg.Token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNoContent {
		return nil, refusal(response)
	}
	got, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil && int64(len(got)) > most {
		err = fmt.Errorf("the answer of %s is longer than %d bytes", target, most)
	}
	return got, err
}

// refusal returns the error of a replica, or of a proxy before it.
func refusal(response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, smallAnswer)) // without a text, the status is the text
	var e freeslot.Error
	var said struct {
		Code           freeslot.Code
		Message, Field string
	}
	if json.Unmarshal(text, &said) == nil && said.Code != "" {
		e = freeslot.Error{Code: said.Code, Message: said.Message, Field: said.Field}
	} else {
		e = freeslot.Error{Code: freeslot.CodeUnavailable, Message: "answer " + response.Status}
	}
	return fmt.Errorf("%s: %w", response.Request.URL.Host, &e)
}

func listPath(list string) string { return "/v1/lists/" + list }

// buildPath returns the path of something in a build of a version.
func buildPath(list string, v *lists.Version, what string) string {
	return fmt.Sprintf("%s/versions/%d/%s?build=%s", listPath(list), v.Number, what, url.QueryEscape(v.Build))
}

func (s *httpSource) poll(ctx context.Context, names []string, history bool) ([]lists.Mark, string, time.Time, error) {
	known := make(map[string]lists.Mark, len(names))
	for _, name := range names {
		known[name] = lists.Mark{}
	}
	got, err := s.call(ctx, "/v1/list-marks", lists.ListMarksRequest{Lists: known, History: history}, smallAnswer)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) { // a replica that hangs
			s.base.Add(1)
		}
		return nil, "", time.Time{}, err
	}
	return lists.DecodeMarks(got, names)
}

func (s *httpSource) delta(ctx context.Context, list string, after int64) (lists.Delta, error) {
	got, err := s.call(ctx, fmt.Sprintf("%s/changes?after=%d", listPath(list), after), nil, deltaAnswer)
	if err != nil {
		return lists.Delta{}, err
	}
	return lists.DecodeDelta(list, got, after)
}

func (s *httpSource) chain(ctx context.Context, chain string) (lists.ChainRecord, error) {
	got, err := s.call(ctx, "/v1/chains/"+url.PathEscape(chain), nil, smallAnswer)
	if err != nil {
		return lists.ChainRecord{}, err
	}
	return lists.DecodeChain(chain, got)
}

func (s *httpSource) block(ctx context.Context, list string, v *lists.Version, index uint32) ([]byte, error) {
	return s.call(ctx, buildPath(list, v, fmt.Sprintf("blocks/%d", index)), nil, blockAnswer)
}

func (s *httpSource) whole(ctx context.Context, list string, v *lists.Version) (map[string]int64, error) {
	got, err := s.call(ctx, buildPath(list, v, "ids"), nil, smallAnswer+idAnswer*min(v.Count, lists.MaxWhole))
	if err != nil {
		return nil, err
	}
	return lists.DecodeIDs(list, v, got)
}

func (s *httpSource) ask(ctx context.Context, list string, v *lists.Version, questions []question) []found {
	q := lists.ListCheck{Version: v.Number, Build: v.Build, IDs: make([]string, len(questions))}
	for i := range questions {
		q.IDs[i] = questions[i].id
	}
	out := make([]found, len(questions))
	got, err := s.check(ctx, list, v.Server, q)
	var answers []lists.ListFound
	if err == nil {
		answers, err = lists.DecodeFound(got, len(questions))
	}
	if err != nil {
		why := ReasonTimeout
		switch freeslot.CodeOf(err) {
		case freeslot.CodeConflict, freeslot.CodeNotFound:
			why = ReasonMoved
		case freeslot.CodeOverloaded:
			why = ReasonOverloaded
		}
		for i := range out {
			out[i].why = why
		}
		return out
	}
	for i, f := range answers {
		out[i] = foundOf(f)
	}
	return out
}

// check waits for a place among the checks of its list server, so that checks of a silent server
// cannot hold all connections.
func (s *httpSource) check(ctx context.Context, list, server string, q lists.ListCheck) ([]byte, error) {
	s.mu.Lock()
	places := s.checks[server]
	if places == nil {
		places = make(chan struct{}, checksPerServer)
		s.checks[server] = places
	}
	s.mu.Unlock()
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-places }()
	return s.call(ctx, listPath(list)+"/check", q, smallAnswer)
}

func (s *httpSource) report(ctx context.Context, client string, reports map[string]lists.ClientReport) error {
	got, err := s.call(ctx, "/v1/list-reports", lists.ListReports{Client: client, Lists: reports}, smallAnswer)
	if err != nil {
		return err
	}
	var said lists.ListReported // a replica of an older release says nothing
	if json.Unmarshal(got, &said) == nil && len(said.Refused) > 0 && !s.refused.Swap(true) {
		s.cfg.Logger.Warn("namelist.report_refused", zap.Strings("lists", said.Refused),
			zap.String("reason", "the tenant has too many clients there; no switch waits for this one"))
	}
	return nil
}

// follow learns of changes by long polls. The client fetches what has changed, so heard gets an
// event without content.
func (s *httpSource) follow(list string, heard func(lists.Event)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var p *poll
	if n := len(s.polls); n > 0 && s.polls[n-1].add(list, heard) {
		p = s.polls[n-1]
	} else {
		p = &poll{heard: make(map[string]func(lists.Event)), known: make(map[string]lists.Mark)}
		p.add(list, heard)
		s.polls = append(s.polls, p)
		s.loops.Go(func() { s.loop(p) })
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.heard, list)
	}
}

// add adds a list, unless the poll is full.
func (p *poll) add(list string, heard func(lists.Event)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) == lists.LookLists {
		return false
	}
	p.heard[list], p.known[list] = heard, lists.Mark{}
	if p.again != nil {
		p.again()
	}
	return true
}

func (s *httpSource) loop(p *poll) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry/5
	for s.ctx.Err() == nil {
		pause := soonEvery // gather what changes meanwhile into one answer
		if more, err := s.pollOnce(p); err == nil || more {
			wait.Reset()
		} else {
			s.cfg.Logger.Debug("namelist.poll_failed", zap.Error(err)) // the looks report it more loudly
			pause = wait.NextBackOff()
		}
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
		}
	}
}

// pollOnce waits for a change. more is true if the request ended because there are more lists.
func (s *httpSource) pollOnce(p *poll) (more bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, pollWait+callTimeout)
	defer cancel()
	ending, again := context.WithCancel(ctx)
	defer again()
	p.mu.Lock()
	known := maps.Clone(p.known)
	p.again = again
	p.mu.Unlock()
	begin := time.Now()
	got, err := s.call(
		ending, "/v1/list-marks", lists.ListMarksRequest{Lists: known, WaitMS: pollWait.Milliseconds(), History: true},
		smallAnswer,
	)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = nil
	if err != nil {
		return ending.Err() != nil && ctx.Err() == nil, err
	}
	names := slices.Collect(maps.Keys(known))
	marks, history, _, err := lists.DecodeMarks(got, names)
	if err != nil {
		return false, err
	}
	other := p.history != "" && history != p.history
	p.history = history
	changed := other
	for i, name := range names {
		m, was := marks[i], known[name]
		if m == was && !other {
			continue
		}
		changed, p.known[name] = true, m
		e := lists.Event{Revision: m.Revision, Birth: m.Birth}
		if other || m.Revision < was.Revision { // edits were lost, and the revision may be known already
			e = lists.Event{}
		}
		if heard := p.heard[name]; heard != nil {
			heard(e)
		}
	}
	if !changed && time.Since(begin) < pollWait/2 {
		return false, errors.New("an answer without a change before its time") // do not ask at full speed
	}
	return false, nil
}
