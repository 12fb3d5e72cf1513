package client

import (
	"fmt"
	"net/url"
	"strings"
)

// IsDenied reports whether Redis refuses its user a command or a key.
func IsDenied(err error) bool { return err != nil && strings.Contains(err.Error(), "NOPERM") }

// User is who connects with this Access to the URL, "" for the default user.
func (a Access) User(rawURL string) string {
	if a.Username != "" {
		return a.Username
	}
	if u, err := url.Parse(rawURL); err == nil && u.User != nil {
		return u.User.Username()
	}
	return ""
}

// Denied is what to do about err where Redis refuses its user a command or a key: it names the user of
// this Access and URL, and the command that prints the rules which that needs. It is "" for any other error.
// Redis 7.0 does not say itself who the user is. command gets the user, "" for the default one: that
// is no user to be given rules.
func (a Access) Denied(err error, rawURL string, command func(user string) string) string {
	if !IsDenied(err) {
		return ""
	}
	user := a.User(rawURL)
	if user == "" || user == "default" {
		return fmt.Sprintf("Redis' user is default; %q prints the rules of one that may", command(""))
	}
	return fmt.Sprintf("Redis' user is %s; %q prints what it may lack (with --cluster on a cluster)", user, command(user)+" --add")
}
