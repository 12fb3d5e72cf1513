package client

import (
	"fmt"
	"net/url"
	"strings"
)

// IsDenied reports whether Redis denied its user a command or a key.
func IsDenied(err error) bool { return err != nil && strings.Contains(err.Error(), "NOPERM") }

// User returns the user who connects with this Access to the URL; "" is the default user.
func (a Access) User(rawURL string) string {
	if a.Username != "" {
		return a.Username
	}
	if u, err := url.Parse(rawURL); err == nil && u.User != nil {
		return u.User.Username()
	}
	return ""
}

// Denied returns the advice for an error by which Redis denies its user a command or a key; "" for
// any other error. It names the user of this Access and URL, which Redis 7.0 does not name, and the
// command that prints the needed rules. command gets the user; "" is the default one, which should
// get no rules.
func (a Access) Denied(err error, rawURL string, command func(user string) string) string {
	if !IsDenied(err) {
		return ""
	}
	user := a.User(rawURL)
	if user == "" || user == "default" {
		return fmt.Sprintf("Redis' user is default; %q prints the rules of one that may", command(""))
	}
	return fmt.Sprintf(
		"Redis' user is %s; %q prints what it may lack (with --cluster on a cluster)", user, command(user)+" --add",
	)
}
