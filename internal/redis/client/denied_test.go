package client

import (
	"errors"
	"testing"
)

func TestDenied(t *testing.T) {
	t.Parallel()
	command := func(user string) string { return "acl " + user }
	err := errors.New("register: NOPERM this user has no permissions to run the 'evalsha' command")
	for _, test := range []struct{ username, url, want string }{
		{"agent-n1", "redis://h:1", `agent-n1; "acl agent-n1 --add" prints what it may lack (with --cluster on a cluster)`},
		{"", "redis://bob:secret@h:1", `bob; "acl bob --add" prints what it may lack (with --cluster on a cluster)`},
		{"", "redis://:secret@h:1", `default; "acl " prints the rules of one that may`},
		{"", "redis://default:secret@h:1", `default; "acl " prints the rules of one that may`},
		{"", "redis://h:1", `default; "acl " prints the rules of one that may`},
		{"", "\x00", `default; "acl " prints the rules of one that may`},
	} {
		if got := (Access{Username: test.username}).Denied(err, test.url, command); got != "Redis' user is "+test.want {
			t.Errorf(`%+v: %s; want got == "Redis' user is "+test.want`, test, got)
		}
	}
	for _, err := range []error{nil, errors.New("WRONGPASS")} {
		if got := (Access{}).Denied(err, "redis://h", command); got != "" {
			t.Errorf(`%v: %s; want got == ""`, err, got)
		}
	}
}
