package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/namelist"
)

// A client by HTTP of a whole replica, whose token is not an operator's.
func TestListByHTTP(t *testing.T) {
	t.Parallel()
	l := start(t, config.Token{Token: "root-token", Tenant: "ops", Role: identity.Operator}, config.Token{Token: "acme-token", Tenant: "acme", Role: identity.Client})
	file := filepath.Join(t.TempDir(), "vip.txt")
	must(t, os.WriteFile(file, []byte("user-1\nuser-2\n"), 0o600))
	l.ctl(t, "lists", "apply", "vip", "--token", "acme-token").expect(t, exitFailure, "apply-list is for tenant-operator, operator, admin")
	l.ctl(t, "lists", "apply", "vip", "--expected", "2", "--token", "root-token").expect(t, exitOK)
	l.ctl(t, "lists", "import", "vip", file, "--switch", "--token", "root-token").expect(t, exitOK, "it serves")

	c, err := namelist.Open(namelist.Config{URL: "http://" + l.server.Addr(), Token: "acme-token", ClientName: "web", Deadline: 5 * time.Second})
	must(t, err)
	ctx := waittest.Context(t)
	defer func() { must(t, c.Close(ctx)) }()
	vip := c.List("vip")
	must(t, vip.WaitReady(ctx))
	if a := vip.Check(ctx, "user-1"); a.Verdict != namelist.Yes || a.Source != namelist.SourceRedis {
		t.Errorf("a member: %+v", a)
	}
	if a := vip.Check(ctx, "user-3"); a.Verdict != namelist.No {
		t.Errorf("a stranger: %+v", a)
	}
	l.ctl(t, "lists", "clients", "vip", "--token", "root-token").expect(t, exitOK, "web-")
	l.ctl(t, "lists", "stats", "vip", "--token", "root-token").expect(t, exitOK, "APPLICATION", "all", "lookups, 1h0m0s a column")
	l.ctl(t, "lists", "stats", "none", "--token", "root-token").expect(t, exitFailure, "there is no list none")
	l.ctl(t, "lists", "stats", "vip", "--since", "9000h", "--token", "root-token").expect(t, exitFailure, "since_ms")
	l.ctl(t, "lists", "stats", "vip", "--token", "acme-token").expect(t, exitFailure, "list-statistics is for viewer, tenant-operator, operator, admin")
}
