package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/process/version"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/retry"
)

const (
	// firstDialTimeout bounds dial and hello while the heartbeat limit is not known. Later a
	// quarter of the limit bounds them, but at least minDialTimeout.
	firstDialTimeout = 5 * time.Second
	minDialTimeout   = time.Second
	// longestRightsRetry bounds the pauses while the token is refused. defectPause is how long an
	// address rests after a defect of either side.
	longestRightsRetry = 30 * time.Second
	defectPause        = time.Minute
)

// connect keeps the node connected until ctx ends or the node is superseded. It replaces the
// connection if it ends or is asked to leave, and looks for another one if Redis does not answer a
// heartbeat through it.
func (s *Store) connect(ctx context.Context, conn *connection) {
	pauses := retry.Pauses()
	for conn != nil {
		select {
		case <-conn.ended:
		case <-conn.doubted:
			conn = s.tryOther(ctx, conn)
			continue
		case <-conn.goaway:
			if len(s.addrs) == 1 { // behind one address, a new connection finds the next replica
				conn.leave()
				<-conn.ended
			}
		case <-ctx.Done():
			return
		}
		conn = s.replace(ctx, conn, pauses)
	}
}

// replace connects to another gateway than the former, if there is one. It returns nil if no more
// connections are wanted.
func (s *Store) replace(
	ctx context.Context, former *connection, pauses *backoff.ExponentialBackOff,
) *connection {
	fatal, why := s.whyEnded(former, pauses)
	if fatal {
		return nil
	}
	to := former.url
	for tries := 1; ; tries++ {
		to = s.other(to)
		if !retry.Wait(ctx, max(redialPause(why, pauses), s.rest(to))) {
			return nil
		}
		conn, err := s.dial(ctx, to, false)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.socket.CloseNow()
			}
			return nil
		case err == nil && !s.adopt(conn, false):
			return nil
		case err == nil:
			s.log.Info("gateway.connected", conn.fields()...)
			return conn
		case isDefect(err):
			s.log.Error("gateway.connect_failed", zap.Error(err))
		case tries == 1 || freeslot.CodeOf(err) != freeslot.CodeOf(why):
			s.log.Warn("gateway.connect_failed", zap.Error(err))
		}
		why = err
	}
}

// whyEnded returns the reason for the connection's end; nil if it has not ended or the node has
// left. Pauses are short again after a useful connection.
func (s *Store) whyEnded(former *connection, pauses *backoff.ExponentialBackOff) (fatal bool, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if former.beaten {
		pauses.Reset()
	}
	switch {
	case s.fatal != nil:
		return true, s.fatal
	case isDefect(former.err):
		s.restFrom(former.url)
		s.log.Error("gateway.lost", append(former.fields(), zap.Error(former.err))...)
	case former.err != nil:
		s.log.Warn("gateway.lost", append(former.fields(), zap.Error(former.err))...)
	}
	return false, former.err
}

func (c *connection) fields() []zap.Field {
	return []zap.Field{
		zap.String("gateway", c.url.Host), zap.String("replica", c.welcome.Replica), zap.String("session", c.welcome.Session),
	}
}

// redialPause returns the pause before the next dial after the failure why; why is nil if there was
// none.
func redialPause(why error, pauses *backoff.ExponentialBackOff) time.Duration {
	pauses.MaxInterval = retry.Longest
	if IsRefusal(why) {
		pauses.MaxInterval = longestRightsRetry
	}
	return pauses.NextBackOff()
}

// IsRefusal reports whether the gateway refuses the token for this node.
func IsRefusal(err error) bool {
	code := freeslot.CodeOf(err)
	return websocket.CloseStatus(err) == frame.CloseRights ||
		code == freeslot.CodeUnauthenticated || code == freeslot.CodePermissionDenied
}

// isDefect reports whether one side does not speak the protocol, so that there is no hurry.
func isDefect(err error) bool {
	switch websocket.CloseStatus(err) {
	case frame.CloseDefect, websocket.StatusUnsupportedData, websocket.StatusInvalidFramePayloadData,
		websocket.StatusMessageTooBig:
		return true
	}
	return errors.Is(err, ErrNoGateway)
}

// isPassing reports whether a proxy answers with this HTTP status while it reaches no gateway.
func isPassing(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusRequestTimeout ||
		status == http.StatusTooManyRequests
}

// ErrNoGateway is wrapped if an address answers, but not as a gateway of this protocol.
var ErrNoGateway = errors.New("this is no gateway that speaks " + frame.Protocol)

// jitter spreads what nodes do when something has happened to all of them at the same time.
func jitter(d time.Duration) time.Duration { return rand.N(d) + 1 }

// restFrom lets the address rest after a defect.
func (s *Store) restFrom(u *url.URL) {
	s.rests[u] = time.Now().Add(defectPause + jitter(defectPause/4))
}

// rest returns how long the address still rests, 0 if it may be tried.
func (s *Store) rest(u *url.URL) time.Duration { return max(time.Until(s.rests[u]), 0) }

// other returns a random gateway that does not rest, and not this one if there are several. If all
// rest, it returns the one whose rest ends first.
func (s *Store) other(than *url.URL) *url.URL {
	best := than
	for _, i := range rand.Perm(len(s.addrs)) {
		u := s.addrs[i]
		if u != than && (s.rest(u) < s.rest(best) || best == than && s.rest(u) == s.rest(than)) {
			best = u
		}
	}
	return best
}

// dialAny tries each gateway once, in random order.
func (s *Store) dialAny(ctx context.Context, check bool) (*connection, error) {
	var failed Errors
	for _, i := range rand.Perm(len(s.addrs)) {
		conn, err := s.dial(ctx, s.addrs[i], check)
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, failed
}

// Errors holds one error for each of several gateways. Start and Check return it.
type Errors []error

func (e Errors) Error() string   { return errors.Join(e...).Error() }
func (e Errors) Unwrap() []error { return e }

// dial connects, says hello and takes the welcome. Errors have a code, and name neither token nor
// path. With check the hello only asks.
func (s *Store) dial(ctx context.Context, to *url.URL, check bool) (*connection, error) {
	conn, err := s.tryDial(ctx, to, check)
	if isDefect(err) {
		s.restFrom(to)
	}
	outcome := connectDone
	switch {
	case err == nil:
	case freeslot.CodeOf(err) == freeslot.CodeUnavailable && !errors.Is(err, ErrNoGateway):
		outcome = connectFailed
	default:
		outcome = connectRefused
	}
	s.metrics.connects.WithLabelValues(outcome).Inc()
	return conn, err
}

func (s *Store) tryDial(ctx context.Context, to *url.URL, check bool) (*connection, error) {
	token, err := s.cfg.token()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.dialTimeout)
	defer cancel()
	s.dials++
	socket, resp, err := websocket.Dial(ctx, to.String()+frame.Path, &websocket.DialOptions{
		HTTPClient:   s.client(),
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + token}, "User-Agent": {"freeslot-agent/" + version.String()}},
		Subprotocols: []string{frame.Protocol},
	})
	if err != nil {
		return nil, s.dialError(to, resp, err)
	}
	begin := time.Now()
	welcome, err := s.hello(ctx, socket, check)
	if err != nil {
		_ = socket.CloseNow()
		return nil, s.dialError(to, nil, err)
	}
	conn := newConnection(s, socket, to, token, welcome, time.Since(begin))
	s.dialTimeout = max(conn.limit()/4, minDialTimeout)
	return conn, nil
}

// client follows no redirects: the token is for the configured hosts alone.
func (s *Store) client() *http.Client {
	return &http.Client{
		Transport: s.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (s *Store) hello(ctx context.Context, socket *websocket.Conn, check bool) (*frame.Welcome, error) {
	if socket.Subprotocol() != frame.Protocol {
		return nil, ErrNoGateway
	}
	message, err := frame.Append(nil, &frame.Request{
		Type: frame.TypeHello, Node: s.cfg.Node, Epoch: s.cfg.Epoch, Connection: s.dials, Version: version.String(),
		Check: check,
	})
	if err != nil {
		return nil, err
	}
	if err := socket.Write(ctx, websocket.MessageText, message); err != nil {
		return nil, err
	}
	_, message, err = socket.Read(ctx)
	if err != nil {
		return nil, err
	}
	var welcome *frame.Welcome
	return welcome, frame.DecodeAnswers(message, func(a *frame.Answer) error {
		switch {
		case welcome != nil: // whatever comes behind it is not awaited yet
		case a.Type == frame.TypeError:
			return &freeslot.Error{Code: a.Code, Message: a.Message, Field: a.Field}
		case a.Type != frame.TypeWelcome || a.Welcome == nil || a.Protocol != frame.Protocol || a.HeartbeatLimitMS < 1:
			return ErrNoGateway
		default:
			welcome = a.Welcome
		}
		return nil
	})
}

// dialError gives the error of a failed connect a code, and the field to blame.
func (s *Store) dialError(to *url.URL, resp *http.Response, err error) error {
	where := "gateway " + to.Host
	var body struct {
		Code    freeslot.Code `json:"code"`
		Message string        `json:"message"`
	}
	coded, isCoded := errors.AsType[*freeslot.Error](err)
	switch {
	case isCoded && coded.Code != freeslot.CodeInvalidArgument:
		body.Code, body.Message = coded.Code, coded.Message
	case isCoded: // an error of the hello, or of a welcome that cannot be read
		err = fmt.Errorf("%w: %s", ErrNoGateway, coded.Message)
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols && resp.Body != nil:
		if json.NewDecoder(resp.Body).Decode(&body) != nil || body.Code == "" {
			body.Code, err = "", fmt.Errorf("HTTP status %s", resp.Status)
			if !isPassing(resp.StatusCode) {
				err = fmt.Errorf("%w: %w", ErrNoGateway, err)
			}
		}
	}
	switch body.Code {
	case "":
		for next := errors.Unwrap(err); next != nil && !errors.Is(err, ErrNoGateway); next = errors.Unwrap(err) {
			if redisclient.IsUntrusted(err) && !redisclient.IsUntrusted(next) {
				break // an alert of TLS alone has no type by which isUnreachable knows it
			}
			err = next // leaves out the URL and the library's words
		}
		return fmt.Errorf(
			"%w: %w", &freeslot.Error{Code: freeslot.CodeUnavailable, Field: "gateway", Message: where + " cannot be used"}, err,
		)
	case freeslot.CodeUnauthenticated, freeslot.CodePermissionDenied:
		field := "token"
		if s.cfg.TokenFile != "" {
			field = "token_file"
		}
		return &freeslot.Error{
			Code: body.Code, Field: field, Message: field + " is refused by " + where + ": " + body.Message,
		}
	case freeslot.CodeNotFound:
		if resp != nil { // the API of a replica has no such path
			body.Message = "this replica is no gateway; set gateway.tokens_file there, or name its gateway.listen"
		}
		fallthrough
	default:
		return &freeslot.Error{Code: body.Code, Field: "gateway", Message: where + ": " + body.Message}
	}
}
