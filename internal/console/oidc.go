package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"
	"golang.org/x/oauth2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/wire"
)

const (
	// loginSuffix ends the name of the cookie that a sign-in at the provider begins with.
	loginSuffix = "-login"
	// loginLife is how long a user may take at the provider, and loginTimeout bounds the calls to it.
	loginLife    = 10 * time.Minute
	loginTimeout = 10 * time.Second
	// maxReturn is the longest address in the page to come back to, in bytes.
	maxReturn = 1 << 10
)

// OIDC describes the provider at which users sign in.
type OIDC struct {
	// Issuer is the provider's URL, ClientID the name of this system there.
	Issuer, ClientID string
	// SecretFile holds the client's secret; empty for a public client.
	SecretFile string
	// RedirectURL is the address of the callback, as browsers reach it.
	RedirectURL string
}

// logins signs users in at a provider, by authorization code with PKCE.
type logins struct {
	cfg OIDC

	mu       sync.Mutex // guards endpoint
	endpoint *oauth2.Endpoint
}

// login is what the browser keeps while its user is at the provider.
type login struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	To       string `json:"to"`
	UntilMS  int64  `json:"until"`
}

// config asks the provider for its addresses once, and reads the secret each time.
func (l *logins) config(ctx context.Context) (*oauth2.Config, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endpoint == nil {
		provider, err := oidc.NewProvider(ctx, l.cfg.Issuer)
		if err != nil {
			return nil, err
		}
		endpoint := provider.Endpoint()
		l.endpoint = &endpoint
	}
	cfg := &oauth2.Config{
		ClientID: l.cfg.ClientID, Endpoint: *l.endpoint, RedirectURL: l.cfg.RedirectURL, Scopes: []string{oidc.ScopeOpenID},
	}
	if l.cfg.SecretFile != "" {
		secret, err := os.ReadFile(l.cfg.SecretFile)
		if err != nil {
			return nil, err
		}
		cfg.ClientSecret = strings.TrimSpace(string(secret))
	}
	return cfg, nil
}

// startLogin sends the browser to the provider.
func (c *Console) startLogin(w http.ResponseWriter, r *http.Request) {
	name := cookieName(r)
	if c.logins == nil || name == "" {
		refuse(w, needsHTTPS())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginTimeout)
	defer cancel()
	cfg, err := c.logins.config(ctx)
	if err != nil {
		c.sampled.Warn("console.provider_failed", zap.Error(err))
		refuse(w, &freeslot.Error{
			Code: freeslot.CodeUnavailable, RetryAfter: retryAfter, Message: "the OpenID provider cannot be asked",
		})
		return
	}
	now := time.Now()
	l := login{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: returnTo(r.URL.Query().Get("to")),
		UntilMS: now.Add(loginLife).UnixMilli(),
	}
	plain, err := json.Marshal(l)
	if err != nil {
		panic(err) // texts and a number
	}
	c.setLogin(w, name, c.sealer.seal(plain), int(loginLife/time.Second))
	w.Header().Set("Location", cfg.AuthCodeURL(l.State, oidc.Nonce(l.Nonce), oauth2.S256ChallengeOption(l.Verifier)))
	w.WriteHeader(http.StatusSeeOther)
}

// setLogin sets the cookie of a login. It is Lax, because the provider sends the browser back.
func (c *Console) setLogin(w http.ResponseWriter, name, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: name + loginSuffix, Value: value, Path: "/", HttpOnly: true, Secure: name == secureCookie,
		SameSite: http.SameSiteLaxMode, MaxAge: seconds,
	})
}

// returnTo returns the place in the page to come back to: a fragment alone, so that no one is sent
// elsewhere.
func returnTo(text string) string {
	if !strings.HasPrefix(text, "#/") || len(text) > maxReturn || strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || r > unicode.MaxASCII
	}) {
		return "#/"
	}
	return text
}

// endLogin takes the user whom the provider sends back.
func (c *Console) endLogin(w http.ResponseWriter, r *http.Request) {
	name := cookieName(r)
	if c.logins == nil || name == "" {
		refuse(w, needsHTTPS())
		return
	}
	l, who, err := c.finish(r, name)
	c.setLogin(w, name, "", -1)
	listener.Tried(r, who.Tenant, err)
	if err != nil {
		c.sampled.Warn("console.unauthenticated", zap.String(logging.FieldAddress, r.RemoteAddr), zap.Error(err))
		refuse(w, wire.AsError(err))
		return
	}
	if err := c.begin(w, r, name, newSession(&who, time.Now()), &who); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Location", "../"+l.To)
	w.WriteHeader(http.StatusSeeOther)
}

func (c *Console) finish(r *http.Request, name string) (l login, who identity.Principal, err error) {
	refused := &freeslot.Error{
		Code:    freeslot.CodeUnauthenticated,
		Message: "this sign-in was not begun in this browser, or took too long: begin again",
	}
	cookie, err := r.Cookie(name + loginSuffix)
	if err != nil {
		return l, who, refused
	}
	plain, err := c.sealer.open(r.Context(), cookie.Value)
	query := r.URL.Query()
	if err != nil || json.Unmarshal(plain, &l) != nil || l.State == "" || time.Now().UnixMilli() >= l.UntilMS ||
		subtle.ConstantTimeCompare([]byte(l.State), []byte(query.Get("state"))) != 1 {
		return l, who, refused
	}
	if query.Get("code") == "" {
		return l, who, &freeslot.Error{
			Code: freeslot.CodeUnauthenticated, Message: "the OpenID provider did not sign the user in",
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginTimeout)
	defer cancel()
	unavailable := &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: retryAfter, Message: "the OpenID provider did not confirm the sign-in",
	}
	cfg, err := c.logins.config(ctx)
	if err != nil {
		return l, who, unavailable
	}
	token, err := cfg.Exchange(ctx, query.Get("code"), oauth2.VerifierOption(l.Verifier))
	if err != nil {
		return l, who, unavailable
	}
	id, _ := token.Extra("id_token").(string)
	who, err = c.auth.IdentifyLogin(ctx, id, c.logins.cfg.ClientID, l.Nonce, maxSession)
	return l, who, err
}
