package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/freeslot/freeslot"
)

// IdentifyLogin returns the user whom an ID token names, after a sign-in at the issuer by the
// client clientID with this nonce. The user is known for until, however short the token lives, and
// no longer than the issuer shows the key that has signed it. Errors are as in Identify.
func (a *Authenticator) IdentifyLogin(
	ctx context.Context, token, clientID, nonce string, until time.Duration,
) (Principal, error) {
	refused := func(why string) error {
		return &freeslot.Error{Code: freeslot.CodeUnauthenticated, Message: "the sign-in is refused: " + why}
	}
	if a.signed == nil {
		return Principal{}, refused("auth.oidc is not configured")
	}
	cfg, found := a.signed.cfg, &signing{}
	verifier := oidc.NewVerifier(cfg.Issuer, a.signed.keys, &oidc.Config{
		ClientID: clientID, SupportedSigningAlgs: cfg.Algorithms,
		Now: func() time.Time { return time.Now().Add(-cfg.ClockSkew) },
	})
	checked, err := verifier.Verify(context.WithValue(ctx, signingKey{}, found), token)
	switch {
	case found.unread:
		return Principal{}, &freeslot.Error{
			Code: freeslot.CodeUnavailable, RetryAfter: time.Second,
			Message: "the sign-in cannot be checked: the keys of the issuer cannot be read",
		}
	case err != nil:
		return Principal{}, refused(err.Error())
	case nonce == "" || subtle.ConstantTimeCompare([]byte(checked.Nonce), []byte(nonce)) != 1:
		return Principal{}, refused("the token is of another sign-in")
	}
	p, err := a.signed.principal(checked)
	if err != nil {
		return Principal{}, refused(err.Error())
	}
	p.digest, p.key, p.Expires = sha256.Sum256([]byte(token)), found.key, time.Now().Add(until)
	return a.effective(p), nil
}
