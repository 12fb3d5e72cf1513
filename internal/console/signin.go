package console

import (
	"encoding/json"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/wire"
)

// maxSignIn is the size of the largest sign-in: signed tokens have some kilobytes.
const maxSignIn = 16 << 10

// signIn exchanges a token for a cookie.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	name := cookieName(r)
	err := c.maySignIn(r, name)
	if err == nil && r.Header.Get(ConsoleHeader) != "1" {
		err = &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: ConsoleHeader, Message: ConsoleHeader + ": 1 is missing in the header",
		}
	}
	var in struct {
		Token string `json:"token"`
	}
	if err == nil && (json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSignIn)).Decode(&in) != nil || in.Token == "") {
		err = freeslot.Invalid("token", `is missing, expected a body such as {"token":"…"}`)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	who, failed := c.auth.Identify(r.Context(), in.Token)
	listener.Tried(r, who.Tenant, failed)
	if failed != nil {
		c.sampled.Warn("console.unauthenticated", zap.String(logging.FieldAddress, r.RemoteAddr), zap.Error(failed))
		refuse(w, wire.AsError(failed))
		return
	}
	if err := c.begin(w, r, name, newSession(&who, time.Now()), &who); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// maySignIn refuses what comes from elsewhere than the page, and where a cookie could be read.
func (c *Console) maySignIn(r *http.Request, cookie string) *freeslot.Error {
	switch {
	case c.crossOrigin.Check(r) != nil:
		return &freeslot.Error{Code: freeslot.CodePermissionDenied, Message: "only the console's own page may send this"}
	case c.auth.Open():
		return &freeslot.Error{
			Code: freeslot.CodeInvalidArgument, Message: "no token is configured, so every caller is an admin",
		}
	case cookie == "":
		return needsHTTPS()
	}
	return nil
}

func needsHTTPS() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodePermissionDenied,
		Message: "signing in needs https: set tls, or name the proxy that ends TLS in trusted_proxies, and let it send " +
			"X-Forwarded-Proto; over plain http it works only in a browser on the replica's machine, by http://localhost",
	}
}

// begin gives the browser a session, and notes that in the audit.
func (c *Console) begin(
	w http.ResponseWriter, r *http.Request, cookie string, s *session, who *identity.Principal,
) *freeslot.Error {
	change, err := c.audited(r, who, "sign-in")
	if err != nil {
		return err
	}
	err = c.setCookie(w, cookie, s, time.Now())
	outcome := audit.OutcomeDone
	if err != nil {
		outcome = string(err.Code)
	}
	change.End(r.Context(), outcome)
	return err
}

// audited begins an entry of the audit.
func (c *Console) audited(r *http.Request, who *identity.Principal, call string) (*audit.Change, *freeslot.Error) {
	if c.audit == nil {
		return nil, nil
	}
	change, err := c.audit.Begin(r.Context(), who, call, r.URL.Path, addressOf(r), "")
	if err != nil {
		return nil, wire.AsError(err)
	}
	return change, nil
}

// signOut takes the session away from the browser, and ends its connections to this replica.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	name := cookieName(r)
	if s := recognized(r); s != nil {
		who, err := c.auth.Redeem(&s.Ticket)
		if err == nil {
			change, refusal := c.audited(r, &who, "sign-out")
			if refusal == nil { // an audit that must but cannot record does not keep anyone signed in
				change.End(r.Context(), audit.OutcomeDone)
			}
		}
		for _, v := range c.viewers.All() {
			if v.session == s.ID {
				v.endRights()
			}
		}
	}
	if name != "" {
		_ = c.setCookie(w, name, nil, time.Now())
	}
	w.WriteHeader(http.StatusNoContent)
}
