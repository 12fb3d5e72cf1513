package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// Path is the path of the console, and the beginning of its other paths.
const Path = "/console"

// Config describes a console. All fields but OIDC are required.
type Config struct {
	// Replica and Build name this process in answers.
	Replica, Build string
	// MaxViewers bounds the pages that get live updates, and MaxTenantViewers the pages of one tenant.
	MaxViewers, MaxTenantViewers int
	// HidePayloads hides payloads and results of jobs from everyone. LongHistory and Links are for the
	// page.
	HidePayloads, LongHistory bool
	Links                     []Link
	// OIDC is where users may sign in, beside tokens; nil: nowhere.
	OIDC *OIDC
}

// Deps holds what a console needs from its replica.
type Deps struct {
	Auth *identity.Authenticator
	// Runner runs scripts in the first cell. nil: sessions are sealed with a key of this replica
	// alone.
	Runner *script.Runner
	// Audit records who signs in and out; nil leaves that out.
	Audit *audit.Log
	Log   *zap.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// Console serves the page. It is safe for concurrent use.
type Console struct {
	cfg     Config
	auth    *identity.Authenticator
	audit   *audit.Log
	log     *zap.Logger
	sampled *zap.Logger // the log for repeated failures
	page    *page
	handler http.Handler

	sealer      *sealer
	crossOrigin *http.CrossOriginProtection
	logins      *logins // nil unless users can sign in at a provider

	metrics  *metrics
	hub      *hub
	socket   socket.Config
	viewers  *socket.Group[*viewer]
	places   places
	stop     sync.Once
	stopping chan struct{} // closed by Stop
}

// New makes a console. It does no I/O.
func New(cfg Config, deps Deps) (*Console, error) {
	p, err := builtIn()
	if err != nil {
		return nil, err
	}
	c := &Console{
		cfg: cfg, auth: deps.Auth, audit: deps.Audit, log: deps.Log, sampled: logging.Sampled(deps.Log), page: p,
		sealer: newSealer(ownKeys, deps.Log), crossOrigin: http.NewCrossOriginProtection(),
		metrics: newMetrics(deps.Metrics), viewers: socket.NewGroup[*viewer](),
		places: places{taken: make(map[string]int)}, stopping: make(chan struct{}),
	}
	if deps.Runner != nil {
		c.sealer.read = newStore(deps.Runner).seals
	}
	if cfg.OIDC != nil {
		c.logins = &logins{cfg: *cfg.OIDC}
	}
	c.hub, c.socket = newHub(c.metrics), c.socketConfig()
	c.handler = secured(c.routes())
	return c, nil
}

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, toPage)
	mux.HandleFunc("GET "+Path+"/{$}", c.page.serveIndex)
	mux.HandleFunc("GET "+Path+"/{hash}/{file}", c.page.serveFile)
	mux.HandleFunc("GET "+Path+"/session", c.known(c.tellSession))
	mux.HandleFunc("GET "+Path+"/snapshot", c.known(c.snapshot))
	mux.HandleFunc("GET "+Path+"/live", c.known(c.live))
	mux.HandleFunc("POST "+Path+"/sign-in", c.signIn)
	if c.logins != nil {
		mux.HandleFunc("GET "+Path+"/oidc/start", c.startLogin)
		mux.HandleFunc("GET "+Path+"/oidc/callback", c.endLogin)
	}
	mux.HandleFunc("POST "+Path+"/sign-out", c.known(c.signOut))
	mux.HandleFunc("/", notFound)
	return mux
}

// known calls next with the caller of the cookie, if there is one.
func (c *Console) known(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r, err := c.Recognize(w, r)
		if err != nil {
			refuse(w, err)
			return
		}
		next(w, r)
	}
}

// Start begins to compute what pages want, until Stop. It must be called before the first request.
func (c *Console) Start(sources Sources) {
	c.hub.start(sources)
	if !c.auth.Open() {
		c.sealer.start()
	}
}

// Stop ends the connections of all pages, and waits until nothing is computed any more. When ctx
// ends first, it cuts the connections. It tolerates a missing Start, and a second call.
func (c *Console) Stop(ctx context.Context) error {
	c.stop.Do(func() { close(c.stopping) })
	err := c.viewers.Stop(ctx, socket.Stopping(closedStopped), func() {})
	c.hub.stop()
	c.sealer.stop()
	if err != nil {
		return fmt.Errorf("stop console: %w", err)
	}
	return nil
}

func (c *Console) now() time.Time { return c.hub.sources.Now() }

// ServeHTTP serves [Path] and below.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// toPage completes the address. It is relative, because a proxy may have put something before it.
func toPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "console/")
	w.WriteHeader(http.StatusSeeOther)
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	refuse(w, &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is nothing at this path of the console"})
}

// refuse answers with an error as the routes of package api do.
func refuse(w http.ResponseWriter, err *freeslot.Error) {
	socket.Refuse(w, wire.HTTPStatus(err.Code), err)
}

// secured adds the headers that tell browsers what the page may do: run its own script, and speak
// to its own replica.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// Link leads from a job to another system: an address with names in braces, which the page
// replaces.
type Link struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// sessionAnswer tells the page who its user is.
type sessionAnswer struct {
	// Open is true if no token is configured, so that every caller is an admin.
	Open     bool          `json:"open"`
	SignedIn bool          `json:"signed_in"`
	Name     string        `json:"name"`
	Tenant   string        `json:"tenant"`
	Role     identity.Role `json:"role"`
	// ExpiresMS is when the session ends, in milliseconds since 1970; 0 without one. IdleMS is how
	// long it may be unused.
	ExpiresMS int64 `json:"expires_ms"`
	IdleMS    int64 `json:"idle_ms"`
	// OIDC is true if users can sign in at a provider.
	OIDC    bool   `json:"oidc"`
	Replica string `json:"replica"`
	Build   string `json:"build"`
	// Payloads is true if the user may see payloads and results of jobs.
	Payloads bool `json:"payloads"`
	// LongHistory is true if GET /v1/history reaches back further than a day.
	LongHistory bool   `json:"long_history"`
	Links       []Link `json:"links,omitempty"`
	NowMS       int64  `json:"now_ms"`
}

func (c *Console) tellSession(w http.ResponseWriter, r *http.Request) {
	answer := sessionAnswer{
		Open: c.auth.Open(), Replica: c.cfg.Replica, Build: c.cfg.Build, NowMS: c.now().UnixMilli(),
		IdleMS: maxIdle.Milliseconds(), OIDC: c.logins != nil,
	}
	if s := recognized(r); s != nil {
		answer.ExpiresMS = s.EndMS
	}
	if who, err := c.auth.Authenticate(r); err == nil {
		listener.Tried(r, who.Tenant, nil)
		_, mayNot := who.May("get-job-spec")
		answer.SignedIn, answer.Name, answer.Tenant, answer.Role = true, who.Name, who.Tenant, who.Role
		answer.Payloads = mayNot == nil && !c.cfg.HidePayloads
		answer.LongHistory, answer.Links = c.cfg.LongHistory, c.cfg.Links
	}
	writeJSON(w, answer)
}

func writeJSON(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the browser may be gone
}
