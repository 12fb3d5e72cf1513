package identity

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/tokenfile"
)

// Config lists how callers are known.
type Config struct {
	// OpenTenant is the tenant of every caller while no way to be known is configured.
	OpenTenant string
	// OperatorsAreAdmins makes admins of operators, until a token of an admin is read.
	OperatorsAreAdmins bool
	// Inline returns the tokens of the configuration, as they are now, and the problems that others
	// have. The error tells why none can be read. nil: the configuration has no tokens.
	Inline func() (tokens []Credential, problems []error, err error)
	// TokensFile is the file of tokens; empty: there is none.
	TokensFile string
	// OIDC describes an issuer of signed tokens; nil: there is none.
	OIDC *OIDC
	Log  *zap.Logger
}

// Authenticator identifies callers by bearer tokens. It is safe for concurrent use.
type Authenticator struct {
	openTenant string
	files      []*tokenfile.File[*Principal]
	sources    []string // the configuration keys of files
	signed     *signed  // nil without an issuer
	signal     *tokenfile.Signal
	// operatorsAreAdmins becomes false once a token of an admin was read, and stays so: otherwise a
	// slip in the admin's line would make every operator one.
	operatorsAreAdmins atomic.Bool
	// elsewhere reports whether a token opens another door; nil: none does.
	elsewhere atomic.Pointer[func(digest [sha256.Size]byte) bool]
}

// New makes an authenticator, and reads the tokens once. The error begins with the configuration
// key that is wrong.
func New(cfg Config) (*Authenticator, error) {
	a := &Authenticator{openTenant: cfg.OpenTenant, signal: tokenfile.NewSignal()}
	a.operatorsAreAdmins.Store(cfg.OperatorsAreAdmins)
	if cfg.Inline != nil {
		if err := a.read(inlineName, inlineText(cfg.Inline), parseInline, cfg.Log); err != nil {
			return nil, fmt.Errorf("tokens: %w", err)
		}
	}
	if cfg.TokensFile != "" {
		if err := a.read("tokens_file", tokenfile.OfFile(cfg.TokensFile), parseToken, cfg.Log); err != nil {
			return nil, fmt.Errorf("tokens_file %s: %w", cfg.TokensFile, err)
		}
	}
	if cfg.OIDC != nil {
		a.signed = newSigned(*cfg.OIDC, cfg.Log, a.signal.Notify)
		for _, role := range cfg.OIDC.Roles {
			if role == Admin {
				a.operatorsAreAdmins.Store(false)
			}
		}
	}
	return a, nil
}

// NewAuthenticator makes an authenticator for tokens that do not change. Without any, every caller
// is an admin of openTenant.
func NewAuthenticator(tokens []Credential, openTenant string, operatorsAreAdmins bool) *Authenticator {
	cfg := Config{OpenTenant: openTenant, OperatorsAreAdmins: operatorsAreAdmins, Log: zap.NewNop()}
	if len(tokens) > 0 {
		cfg.Inline = func() ([]Credential, []error, error) { return tokens, nil, nil }
	}
	a, err := New(cfg)
	if err != nil {
		panic(err) // the caller's tokens are bad
	}
	return a
}

func (a *Authenticator) read(
	name string, read func() ([]byte, error), parse func(*yaml.Node) (*Principal, tokenfile.Head, error), log *zap.Logger,
) error {
	f, err := tokenfile.Open(tokenfile.Config[*Principal]{
		Read: read, Signal: a.signal, Name: name, Unnumbered: name == inlineName, Event: "auth", Log: log,
		Parse: func(item *yaml.Node) (*Principal, tokenfile.Head, error) {
			p, head, err := parse(item)
			if err == nil && p.Role == Admin {
				a.operatorsAreAdmins.Store(false)
			}
			return p, head, err
		},
		Elsewhere: func(digest [sha256.Size]byte) bool {
			f := a.elsewhere.Load()
			return f != nil && (*f)(digest)
		},
	})
	a.files, a.sources = append(a.files, f), append(a.sources, name)
	return err
}

// Elsewhere sets what reports whether a token opens another door. Such a token is refused when it
// is read.
func (a *Authenticator) Elsewhere(lists func(digest [sha256.Size]byte) bool) {
	a.elsewhere.Store(&lists)
}

// Start begins to look for changes of the tokens, until Stop.
func (a *Authenticator) Start(ctx context.Context) error {
	for i, f := range a.files {
		if err := f.Start(ctx); err != nil {
			for _, started := range a.files[:i] {
				_ = started.Stop(ctx)
			}
			return err
		}
	}
	if a.signed != nil {
		a.signed.keys.start()
	}
	return nil
}

// Stop waits until nothing looks for changes any more.
func (a *Authenticator) Stop(ctx context.Context) error {
	if a.signed != nil {
		if err := a.signed.keys.halt(ctx); err != nil {
			return err
		}
	}
	for _, f := range a.files {
		if err := f.Stop(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Register registers the metrics of the tokens.
func (a *Authenticator) Register(reg prometheus.Registerer) {
	for _, f := range a.files {
		f.Register(reg)
	}
}

// Ready is a condition of readiness that always holds. Its detail tells which tokens cannot be
// used.
func (a *Authenticator) Ready() (ok bool, detail string) {
	for _, f := range a.files {
		if _, detail := f.Ready(); detail != "" {
			return true, detail
		}
	}
	if a.signed != nil {
		if problem := a.signed.keys.problem.Load(); problem != nil {
			return true, "degraded: " + *problem
		}
	}
	return true, ""
}

// Open reports whether every caller is accepted, because no way to be known is configured.
func (a *Authenticator) Open() bool { return len(a.files) == 0 && a.signed == nil }

// Lists reports whether there is a token with this digest.
func (a *Authenticator) Lists(digest [sha256.Size]byte) bool {
	for _, f := range a.files {
		if f.Lists(digest) {
			return true
		}
	}
	return false
}

// Authenticate returns the caller that sent r: the one of [As], or the one of the token. The token
// is in the Authorization header. In the handshake of a WebSocket, where browsers cannot set
// headers, it may be in the query parameter access_token. The error is a *freeslot.Error with code
// unauthenticated, or unavailable if a signed token cannot be checked now.
func (a *Authenticator) Authenticate(r *http.Request) (Principal, error) {
	if a.Open() {
		return Principal{Tenant: a.openTenant, Role: Admin}, nil
	}
	if who := known(r.Context()); who != nil {
		return *who, nil
	}
	token, ok := bearerToken(r)
	if !ok {
		return Principal{}, &freeslot.Error{
			Code:    freeslot.CodeUnauthenticated,
			Message: `no token, expected the header "Authorization: Bearer <token>"`,
		}
	}
	return a.Identify(r.Context(), token)
}

// Identify returns the caller of a token that did not come with the request itself, as Authenticate
// does for one that has.
func (a *Authenticator) Identify(ctx context.Context, token string) (Principal, error) {
	digest := sha256.Sum256([]byte(token))
	if p, ok := a.find(digest); ok {
		return p, nil
	}
	if a.signed != nil && strings.Count(token, ".") == 2 {
		p, err := a.signed.find(ctx, token, digest)
		return a.effective(p), err
	}
	return Principal{}, &freeslot.Error{
		Code: freeslot.CodeUnauthenticated, Message: "the token is not one that this replica knows",
	}
}

// Listed is a token that the authenticator knows.
type Listed struct {
	Principal
	// Source is the configuration key of its file, or of the tokens in the configuration.
	Source string
	// Seen is the second when a call came with it last, or a session had it; zero: not since the
	// start.
	Seen time.Time
}

// Problem is why some tokens of a source cannot be used.
type Problem struct{ Source, Text string }

// Tokens returns all tokens except signed ones, in no order, and the first problems of each source.
func (a *Authenticator) Tokens() (all []Listed, problems []Problem) {
	for i, f := range a.files {
		for _, t := range f.All() {
			all = append(all, Listed{Principal: a.effective(*t.Line), Source: a.sources[i], Seen: t.Seen})
		}
		for _, text := range f.Problems() {
			problems = append(problems, Problem{a.sources[i], text})
		}
	}
	if a.signed != nil {
		if text := a.signed.keys.problem.Load(); text != nil {
			problems = append(problems, Problem{"auth.oidc", *text})
		}
	}
	return all, problems
}

func (a *Authenticator) find(digest [sha256.Size]byte) (Principal, bool) {
	for _, f := range a.files {
		if found, ok := f.Get(digest); ok {
			return a.effective(*found), true
		}
	}
	return Principal{}, false
}

// effective makes an admin of an operator while operators are admins.
func (a *Authenticator) effective(p Principal) Principal {
	if p.Role == Operator && a.operatorsAreAdmins.Load() {
		p.Role, p.raised = Admin, true
	}
	return p
}

// Changed returns a channel that is closed when a caller may no longer be known, or be known as
// another. Get the channel before you ask Holds, or you may miss a change.
func (a *Authenticator) Changed() <-chan struct{} { return a.signal.Changed() }

// Holds reports whether the caller is still known, with the same rights.
func (a *Authenticator) Holds(p *Principal) bool {
	if a.Open() {
		return true
	}
	if p.key != "" {
		return time.Now().Before(p.Expires) && a.signed.keys.has(p.key) && (!p.raised || a.operatorsAreAdmins.Load())
	}
	now, ok := a.find(p.digest)
	return ok && reflect.DeepEqual(now, *p)
}

func bearerToken(r *http.Request) (string, bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		token = strings.TrimSpace(token)
		return token, strings.EqualFold(scheme, "Bearer") && token != ""
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		token := r.URL.Query().Get("access_token")
		return token, token != ""
	}
	return "", false
}
