package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/linger"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/process/logging"
)

// SessionPath is the path of the WebSocket.
const SessionPath = "/v1/ws"

// GatewayPath is the path where agents come in, and the beginning of their other paths. (/v1/nodes
// is another.)
const GatewayPath = "/v1/node"

// RegistryPath is the beginning of the paths by which operators see and change the service
// registry.
const RegistryPath = "/admin/registry"

// ConsolePath is the path of the page for operators, and the beginning of its other paths.
const ConsolePath = "/console"

// BuildHeader names the version of the replica in each answer, if it serves a console: its page may
// come from another replica.
const BuildHeader = "Freeslot-Build"

// CallTimeout bounds the store calls of one request, without waits for a result.
const CallTimeout = 5 * time.Second

// MaxWait is the longest time that a submit can wait for its result.
const MaxWait = time.Minute

const (
	defaultMaxWaits    = 10_000
	defaultBodyTimeout = 15 * time.Second
	defaultLinkTimeout = 50 * time.Millisecond

	// bodyOverhead is room for a job without its payload: requirement, names.
	bodyOverhead      = 128 << 10
	readHeaderTimeout = 5 * time.Second
	writeTimeout      = MaxWait + 15*time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10

	// mostConnections and strangersOfAddress bound the connections without a valid token, and
	// strangerIdle how long one may wait for its next request. mostConnections bounds the ones of a
	// tenant, too.
	mostConnections    = 8192
	strangersOfAddress = 64
	strangerIdle       = 10 * time.Second
)

// Config configures a server. The zero value of each field means its default, unless it says
// otherwise.
type Config struct {
	// Listen is host:port; port 0 takes any free one. Only Start needs it.
	Listen string
	// Replica and Version name this process in answers.
	Replica string
	Version string
	// MaxPayloadBytes is the largest payload of a job; 0 means freeslot.DefaultMaxPayloadBytes.
	MaxPayloadBytes int
	// MaxWaits is the number of submits that may wait for their result at a time; 0 means 10000.
	// Further ones are refused as overloaded.
	MaxWaits int
	// BodyTimeout is how long the body of a request may take to arrive; 0 means 15 s.
	BodyTimeout time.Duration
	// LinkTimeout bounds how long a reading of nodes asks how they are connected; 0 means 50 ms.
	LinkTimeout time.Duration
	// MetricsListen is host:port of a plain listener for /metrics, /healthz and /readyz. With it
	// /metrics is not at Listen.
	MetricsListen string
	// MetricsAuth is true if /metrics is only for callers whose role may see it.
	MetricsAuth bool
	// AllowedOrigins are the web origins in addition to the server's own.
	AllowedOrigins []string
	// Proxies name the senders of the requests that they pass on.
	Proxies []netip.Prefix
	// HidePayloads hides payloads and results of jobs from callers who use the console.
	HidePayloads bool
	// BoundLoopback bounds connections of the loopback like others, for tests.
	BoundLoopback bool
}

// WithDefaults returns c with zero fields replaced.
func (c Config) WithDefaults() Config {
	c.MaxPayloadBytes = cmp.Or(c.MaxPayloadBytes, freeslot.DefaultMaxPayloadBytes)
	c.MaxWaits = cmp.Or(c.MaxWaits, defaultMaxWaits)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, defaultBodyTimeout)
	c.LinkTimeout = cmp.Or(c.LinkTimeout, defaultLinkTimeout)
	return c
}

// Deps holds the parts of a server.
type Deps struct {
	Jobs  Jobs
	Nodes Nodes
	Auth  *identity.Authenticator
	// GatewayTokens returns the tokens of nodes, and the first problems of their file. nil: there are
	// none.
	GatewayTokens func() (all []TokenStatus, problems []string)
	// Specs returns jobs as they were submitted. Without it jobs cannot be requeued.
	Specs Specs
	// Queues lists queues and drops ended jobs. nil leaves out these routes.
	Queues Queues
	// Control drains and removes nodes. nil leaves out these routes.
	Control NodeControl
	// Links tells how nodes are connected. nil leaves that out.
	Links Links
	// Routes are the routes of features.
	Routes []Routes
	// Sessions serves /v1/ws, and authenticates itself. nil leaves out the route.
	Sessions http.Handler
	// Gateway serves agents at GatewayPath and below. It authenticates them itself, and has its own
	// limits for bodies. nil leaves out the routes.
	Gateway http.Handler
	// Console serves ConsolePath and below, and knows callers by their cookies. nil leaves it out.
	Console Console
	// TLS holds the certificate of the listener. nil: it speaks plain HTTP.
	TLS *listener.TLS
	// Audit records changes by operators. nil leaves that and its route out.
	Audit *audit.Log
	// Findings tells what is wrong now. nil leaves out its route.
	Findings Findings
	// Doctor tells what is wrong with Redis' servers, for callers that ask for it. nil: nothing.
	Doctor Findings
	// Checks are the conditions of readiness, in the order of /readyz.
	Checks []Check
	// Gatherer is served at /metrics; nil leaves out the route. Registerer gets the server's own
	// metrics; nil means none.
	Gatherer       prometheus.Gatherer
	Registerer     prometheus.Registerer
	TracerProvider trace.TracerProvider
	Logger         *zap.Logger
}

// Console is the page for operators; *console.Console implements it.
type Console interface {
	http.Handler
	// Recognize makes the caller of the request's cookie the caller of the request, if it has one. The
	// error is for the answer.
	Recognize(w http.ResponseWriter, r *http.Request) (*http.Request, *freeslot.Error)
}

// Server serves a replica over HTTP. It is safe for concurrent use.
type Server struct {
	cfg     Config
	deps    Deps
	log     *zap.Logger
	sampled *zap.Logger // the log for repeated failures
	tracer  trace.Tracer
	metrics *metrics
	// waits has room for Config.MaxWaits. Each submit that waits holds one place.
	waits chan struct{}

	bodyLimits map[string]bodyLimit // for the paths with a limit of their own
	handler    http.Handler
	inner      http.Handler // the documented routes alone
	openapi    huma.API

	*listener.Server                  // the listener and what it serves
	monitor          *listener.Server // for monitoring alone; nil unless configured

	drain    sync.Once
	draining chan struct{} // closed by Drain
}

// New makes a server. It does no I/O.
func New(cfg Config, deps Deps) *Server {
	overrideErrors()
	cfg = cfg.WithDefaults()
	if deps.Logger == nil {
		deps.Logger = zap.NewNop()
	}
	if deps.TracerProvider == nil {
		deps.TracerProvider = noop.NewTracerProvider()
	}
	s := &Server{
		cfg: cfg, deps: deps, log: deps.Logger, sampled: logging.Sampled(deps.Logger),
		tracer: deps.TracerProvider.Tracer("freeslot/api"), metrics: newMetrics(deps.Registerer),
		waits: make(chan struct{}, cfg.MaxWaits), bodyLimits: make(map[string]bodyLimit),
		draining: make(chan struct{}),
	}
	s.handler = s.routes()
	// Strangers leave half of the process's files to callers with a token, and to Redis, and the
	// callers of one tenant to others.
	share := listener.HalfOfFiles(mostConnections)
	s.Server = listener.New("listen on", cfg.Listen, &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: readHeaderTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          zap.NewStdLog(deps.Logger.Named("http")),
	}, deps.TLS, listener.Limits{
		Strangers: share, PerOwner: share, PerAddress: strangersOfAddress, Idle: strangerIdle, Proxies: cfg.Proxies,
		BoundLoopback: cfg.BoundLoopback,
	})
	s.monitor = s.newMonitor()
	return s
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	s.openapi = s.register(mux)
	serveDocument(mux, s.openapi.OpenAPI())
	s.health(mux)
	if s.deps.Gatherer != nil && s.cfg.MetricsListen == "" {
		mux.Handle("GET /metrics", s.scrape())
	}
	s.inner = s.recovered(strictRoutes(mux))
	inner := s.metrics.wrap(s.inner)
	guard := &guard{loopbackOnly: s.deps.Auth.Open(), origins: s.cfg.AllowedOrigins}
	beside := compressed(s.withConsole(beside(inner, s.deps.Sessions)))
	return linger.Handler(noStore(s.withGateway(s.boundBody(guard.wrap(beside)))))
}

// noStore keeps caches of browsers and proxies from holding what one caller may see.
func noStore(next http.Handler) http.Handler {
	value := []string{"no-store"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Cache-Control"] = value
		next.ServeHTTP(w, r)
	})
}

// withGateway comes before two other layers. One is the guard, which admits only this machine's
// names while no client has a token. The other is the bound of bodies, for which agents on slow
// lines may need longer.
func (s *Server) withGateway(next http.Handler) http.Handler {
	if s.deps.Gateway == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == GatewayPath || strings.HasPrefix(r.URL.Path, GatewayPath+"/") {
			s.deps.Gateway.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// beside keeps WebSocket sessions, which last for hours, away from the metrics of requests. (A
// second ServeMux would put its own pattern on every request.)
func beside(next, sessions http.Handler) http.Handler {
	if sessions == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == SessionPath {
			sessions.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withConsole serves the page for operators, and sends browsers there from the root. The address is
// relative, because a proxy may have put something before it.
func (s *Server) withConsole(next http.Handler) http.Handler {
	if s.deps.Console == nil {
		return next
	}
	console, build := s.recovered(s.deps.Console), []string{s.cfg.Version}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()[BuildHeader] = build
		switch {
		case r.URL.Path == ConsolePath || strings.HasPrefix(r.URL.Path, ConsolePath+"/"):
			console.ServeHTTP(w, r)
		case r.URL.Path == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
			w.Header().Set("Location", strings.TrimPrefix(ConsolePath, "/")+"/")
			w.WriteHeader(http.StatusSeeOther)
		case byCookie(r):
			r, err := s.deps.Console.Recognize(w, r)
			if err != nil {
				writeError(w, body(err))
				return
			}
			next.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// byCookie reports whether the console's cookie opens this: the API over HTTP. Pages have no use
// for the WebSockets of clients and of agents.
func byCookie(r *http.Request) bool {
	path := r.URL.Path
	api := strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, RegistryPath+"/")
	return api && path != SessionPath && path != GatewayPath &&
		!strings.HasPrefix(path, GatewayPath+"/") && r.Header.Get("Cookie") != ""
}

// Handler returns the handler of everything. It is for tests, and for embedding into another
// server.
func (s *Server) Handler() http.Handler { return s.handler }

// Drain turns readiness red, answers the submits that wait, and refuses new ones. It returns at
// once. Further calls do nothing.
func (s *Server) Drain() { s.drain.Do(func() { close(s.draining) }) }

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// Stop drains, and stops the listener as [listener.Server.Stop] does.
func (s *Server) Stop(ctx context.Context) error {
	s.Drain()
	if err := s.stopListeners(ctx); err != nil {
		return fmt.Errorf("stop server: %w", err)
	}
	return nil
}

// recovered turns a panic into an internal error, and logs the stack. An answer that had begun is
// cut off instead, so that no client takes it for complete.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			err, _ := v.(error)
			if !errors.Is(err, http.ErrAbortHandler) {
				s.log.Error("http.handler_panicked", zap.String("route", r.Pattern), zap.Any("panic", v), zap.Stack("stack"))
			}
			if recorder, ok := w.(*statusRecorder); errors.Is(err, http.ErrAbortHandler) || ok && recorder.begun {
				panic(http.ErrAbortHandler)
			}
			writeError(w, body(internalError()))
		}()
		next.ServeHTTP(w, r)
	})
}
