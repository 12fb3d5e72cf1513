package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// approvalRig is a replica with approval, whose callers have a tenant each.
type approvalRig struct {
	*live

	t *testing.T
}

func newApprovalRig(t *testing.T) *approvalRig {
	t.Helper()
	file := listFile(t, "crm.csv", "a\nb\nc\nd\ne\n")
	return &approvalRig{t: t, live: startWith(t, func(cfg *config.Replica) {
		cfg.Lists.Sources = map[string]config.ListSource{"crm": {Kind: "file", Path: file}}
		cfg.Lists.Approval = config.ListApproval{
			Creation: true, Deletion: true, Chains: true, OverIDs: 2, DenyLists: []string{"deny*"},
		}
		for tenant, role := range map[string]identity.Role{
			"ada": identity.Admin, "bob": identity.Admin, "olga": identity.Operator,
			"shop": identity.TenantOperator, "other": identity.TenantOperator,
		} {
			cfg.Tokens = append(cfg.Tokens, config.Token{Token: tenant + "-token", Tenant: tenant, Role: role})
		}
	})}
}

// as runs `schedctl lists` with a caller's token.
func (r *approvalRig) as(who string, args ...string) result {
	r.t.Helper()
	return r.ctl(r.t, append(append([]string{"lists"}, args...), "--token", who+"-token")...)
}

// get returns the answer to a request with a caller's token.
func (r *approvalRig) get(who, path string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.server.Addr()+path, http.NoBody)
	must(r.t, err)
	req.Header.Set("Authorization", "Bearer "+who+"-token")
	resp, err := http.DefaultClient.Do(req)
	must(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(r.t, err)
	return string(text)
}

var sessionID = regexp.MustCompile(`session (\S+) of`)

var pendingID = regexp.MustCompile(`request (\S+\.[0-9a-f]{32})`)

// pending wants that the command opened a request, and returns its id.
func (r *approvalRig) pending(got result) string {
	r.t.Helper()
	got.expect(r.t, exitFailure, "nothing was changed yet")
	found := pendingID.FindStringSubmatch(got.out + got.err)
	if found == nil {
		r.t.Fatalf("%q names no request; want its id", got.err)
	}
	return found[1]
}

// approved opens a request as one admin, and approves it as the other.
func (r *approvalRig) approved(got result) {
	r.t.Helper()
	r.as("bob", "requests", "approve", r.pending(got)).expect(r.t, exitOK, "approved: ")
}

// TestListsApproval: changes beyond policy wait for another admin, and are made as they were asked.
func TestListsApproval(t *testing.T) {
	t.Parallel()
	r := newApprovalRig(t)
	id := r.pending(r.as("ada", "apply", "vip"))
	r.as("ada", "show", "vip").expect(t, exitFailure, "not_found")
	r.as("ada", "requests", "ls").expect(t, exitOK, id, "pending", "create list vip", "ada")
	r.as("ada", "requests", "show", id).expect(t, exitOK, "digest ", "{}")
	r.as("ada", "requests", "approve", id).expect(t, exitFailure, "permission_denied", "somebody else decides")
	r.as("olga", "requests", "approve", id).expect(t, exitFailure, "permission_denied")
	r.as("olga", "requests", "reject", id).expect(t, exitFailure, "permission_denied", "an admin decides")
	r.as("bob", "requests", "approve", id, "--digest", "0").expect(t, exitFailure, "invalid_argument", "digest")
	r.as("bob", "requests", "approve", id, "--comment", "fine").expect(t, exitOK, "approved: create list vip")
	r.as("bob", "requests", "approve", id).expect(t, exitFailure, "conflict", "approved already")
	r.as("ada", "requests", "ls", "--all").expect(t, exitOK, "approved", "bob", "fine")
	r.ctl(t, "audit", "--token", "ada-token").expect(
		t, exitOK, "waits for approval: "+id, "approve-request", "create list vip",
	)

	// A first version of three ids, by an import and by hand.
	file := filepath.Join(t.TempDir(), "ids.txt")
	must(t, os.WriteFile(file, []byte("a\nb\nc\n"), 0o600))
	asked := r.as("ada", "import", "vip", file, "--switch")
	id = r.pending(asked)
	asked.expect(t, exitFailure, "did not switch to version 1", "`schedctl lists requests approve "+id+"`")
	if strings.Contains(asked.err, "tries again") {
		t.Errorf("the import says %q; want no word of another switch, which asks for the same approval", asked.err)
	}
	r.as("ada", "requests", "show", id).expect(
		t, exitOK, "switch list vip from version 0 to 1 (3 ids), which changes 3 ids",
	)
	if again := r.pending(r.as("ada", "switch", "vip", "1")); again != id {
		t.Errorf("the same switch again is request %s; want %s", again, id)
	}
	r.as("bob", "requests", "approve", id).expect(t, exitOK)
	waitServes(t, r, "vip", "1")

	// Small edits need none. A large one becomes a conflict when the list moves on.
	r.as("olga", "add", "vip", "d").expect(t, exitOK)
	id = r.pending(r.as("olga", "add", "vip", "f", "g", "h", "--urgent", "--author", "olga", "--note", "not a deny list"))
	r.as("olga", "remove", "vip", "d").expect(t, exitOK)
	r.as("bob", "requests", "ls", "--all").expect(t, exitOK, "conflict")
	r.as("bob", "requests", "approve", id).expect(t, exitFailure, "conflict", "moved on")
	r.as("ada", "query", "vip", "f").expect(t, exitOK, "f   no")
	r.approved(r.as("olga", "add", "vip", "f", "g", "h", "--note", "again"))
	r.as("ada", "query", "vip", "f").expect(t, exitOK, "f   yes")
	id = r.pending(r.as("olga", "remove", "vip", "a", "b", "c"))
	r.as("olga", "requests", "reject", id).expect(t, exitOK, "withdrawn: ")
	r.as("bob", "requests", "reject", id).expect(t, exitFailure, "conflict", "withdrawn already")

	// The end of a list changes all its answers; its name is no way around.
	r.pending(r.as("ada", "apply", "vip", "--expires", "1h"))
	r.approved(r.as("ada", "rm", "vip"))
	r.as("ada", "query", "vip", "a").expect(t, exitFailure)
}

// waitServes waits until a list serves a version.
func waitServes(t *testing.T, r *approvalRig, list, version string) {
	t.Helper()
	waittest.Until(t, "the approved switch ends", func() bool {
		got := r.as("ada", "ls")
		for line := range strings.Lines(got.out) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == list {
				return f[1] == "active" && f[2] == version
			}
		}
		return false
	})
}

// TestListsApprovalAddsUp: many small changes of a list need approval together, by whatever way and
// whoever makes them. An approved one begins anew.
func TestListsApprovalAddsUp(t *testing.T) {
	t.Parallel()
	r := newApprovalRig(t)
	r.approved(r.as("ada", "apply", "vip"))
	r.approved(r.as("ada", "import", "vip", listFile(t, "ids.txt", "a\nb\nc\n"), "--switch"))
	waitServes(t, r, "vip", "1")
	r.as("olga", "add", "vip", "d").expect(t, exitOK)
	r.as("ada", "remove", "vip", "a").expect(t, exitOK)
	id := r.pending(r.as("olga", "add", "vip", "e"))
	r.as("ada", "requests", "show", id).expect(t, exitOK, "2 others were changed without approval in the last 24 hours")
	session := sessionID.FindStringSubmatch(r.as("ada", "session", "begin", "vip").out)
	if session == nil {
		t.Fatal("no session has begun; want its id")
	}
	r.as("ada", "session", "add", "vip", session[1], "e").expect(t, exitOK)
	r.as("ada", "session", "commit", "vip", session[1]).expect(t, exitFailure, "conflict", "2 ids were changed without")
	r.as("ada", "session", "cancel", "vip", session[1]).expect(t, exitOK)
	id = r.pending(r.as("ada", "import", "vip", listFile(t, "one.txt", "f\n"), "--mode", "add", "--switch"))
	r.as("ada", "query", "vip", "e", "f").expect(t, exitOK, "e   no", "f   no")
	r.as("bob", "requests", "approve", id).expect(t, exitOK)
	waitServes(t, r, "vip", "2")
	r.as("olga", "add", "vip", "e", "g").expect(t, exitOK)
	r.pending(r.as("olga", "add", "vip", "h"))
	r.pending(r.as("ada", "switch", "vip", "1")) // what it takes back counts too
}

// TestListsApprovalUrgent: an urgent edit of a deny list is made at once, and shown. A chain waits.
func TestListsApprovalUrgent(t *testing.T) {
	t.Parallel()
	r := newApprovalRig(t)
	r.approved(r.as("ada", "apply", "deny.ids"))
	r.approved(r.as("ada", "import", "deny.ids", listFile(t, "ids.txt", "a\nb\nc\n"), "--switch"))
	waitServes(t, r, "deny.ids", "1")
	r.as("olga", "add", "deny.ids", "d", "e", "f", "--urgent", "--author", "olga", "--note", "attack").expect(t, exitOK)
	r.as("ada", "requests", "ls", "--all").expect(t, exitOK, "urgent", "change 3 ids of list deny.ids", "attack")
	r.ctl(t, "audit", "--token", "ada-token").expect(t, exitOK, "urgent, without approval")

	chain := listFile(t, "chain.json", canaryChain(5, "deny.ids"))
	id := r.pending(r.as("ada", "chain", "apply", "canary", chain))
	r.as("ada", "chain", "show", "canary").expect(t, exitFailure, "not_found")
	r.as("bob", "requests", "approve", id).expect(t, exitOK, "approved: put chain canary")
	id = r.pending(r.as("ada", "chain", "apply", "canary", chain)) // the document that serves already
	r.as("bob", "requests", "approve", id).expect(t, exitOK)
	r.as("bob", "requests", "show", id).expect(t, exitOK, "approved")
	id = r.pending(r.as("ada", "chain", "apply", "canary", listFile(t, "chain.json", canaryChain(10, "deny.ids"))))
	r.as("bob", "requests", "show", id).expect(t, exitOK, "put chain canary, made from version 1\n",
		"~ rules.share.percent: 5 -> 10\n{\n", "\n  \"rules\": [\n")
	r.as("ada", "chain", "shadow", "canary", chain).expect(t, exitOK) // it needs none, and moves the chain on
	r.as("bob", "requests", "approve", id).expect(t, exitFailure, "conflict")
	id = r.pending(r.as("ada", "chain", "rm", "canary"))
	r.as("bob", "requests", "show", id).expect(t, exitOK, "delete chain canary, made from version 1\n")
	r.as("bob", "requests", "approve", id).expect(t, exitOK, "approved: ")
}

// TestListsApprovalOfSource: who stands behind a source cannot approve what it brings.
func TestListsApprovalOfSource(t *testing.T) {
	t.Parallel()
	r := newApprovalRig(t)
	r.approved(r.as("ada", "apply", "vip"))
	r.as("ada", "source", "set", "vip", "crm").expect(t, exitOK)
	r.as("ada", "source", "run", "vip").expect(t, exitOK)
	var asked result
	waittest.Until(t, "the request of the source", func() bool {
		asked = r.as("bob", "requests", "ls")
		return strings.Contains(asked.out, "source/crm")
	})
	held := func() bool { return strings.Contains(r.ctl(t, "status", "--token", "bob-token").out, "vip held") }
	waittest.Until(t, "the finding of the run", held)
	id := regexp.MustCompile(`_sources\.[0-9a-f]{32}`).FindString(asked.out)
	r.as("ada", "requests", "approve", id).expect(t, exitFailure, "permission_denied", "another admin decides")
	r.as("bob", "requests", "approve", id).expect(t, exitOK, "approved: ")
	waittest.Until(t, "the finding to go", func() bool { return !held() })
}

// TestListsOfTenant: a tenant registers an application and applies for a list, which it then edits
// and queries. Others need a grant.
func TestListsOfTenant(t *testing.T) {
	t.Parallel()
	r := newApprovalRig(t)
	r.as("shop", "apply", "vip", "--application", "checkout").expect(t, exitFailure, "application", "not registered")
	r.approved(r.as("shop", "applications", "apply", "checkout", "--contact", "shop@example.com", "--with-token", "web"))
	r.as("shop", "applications", "ls").expect(t, exitOK, "checkout", "shop@example.com", "web")
	r.as("other", "applications", "ls").expect(t, exitOK, "APPLICATION  TENANT  CONTACT  TOKENS  REVISION\n")
	r.as("other", "applications", "apply", "checkout").expect(t, exitFailure, "permission_denied")
	r.as("shop", "apply", "vip").expect(t, exitFailure, "application is")
	r.as("other", "apply", "vip", "--application", "checkout").expect(t, exitFailure, "application is")
	id := r.pending(r.as("shop", "apply", "vip", "--application", "checkout"))
	r.as("other", "requests", "show", id).expect(t, exitFailure, "not_found")
	r.as("shop", "requests", "approve", id).expect(t, exitFailure, "permission_denied")
	r.as("ada", "requests", "approve", id).expect(t, exitOK)

	r.approved(r.as("shop", "import", "vip", listFile(t, "ids.txt", "a\nb\nc\n"), "--switch"))
	waitServes(t, r, "vip", "1")
	r.as("shop", "add", "vip", "d").expect(t, exitOK)
	r.as("shop", "query", "vip", "d").expect(t, exitOK, "d   yes")
	r.as("shop", "ls").expect(t, exitOK, "vip")
	r.as("shop", "stats", "vip").expect(t, exitOK)
	r.as("shop", "freeze", "vip").expect(t, exitFailure, "permission_denied")

	// Another tenant does not learn of it, and an operator needs a grant.
	r.approved(r.as("ada", "apply", "free"))
	r.as("other", "ls").expect(t, exitOK, "LIST  STATE")
	for _, args := range [][]string{{"show", "vip"}, {"stats", "vip"}, {"query", "vip", "a"}, {"add", "vip", "x"}, {"query", "free", "a"}} {
		r.as("other", args...).expect(t, exitFailure, "not_found")
	}
	r.as("olga", "show", "vip").expect(t, exitOK, "checkout")
	r.as("olga", "query", "vip", "a").expect(t, exitFailure, "permission_denied", "lists grant vip")
	r.as("olga", "add", "vip", "x").expect(t, exitFailure, "permission_denied")
	r.as("ada", "own", "vip").expect(t, exitUsage, "--none")
	r.as("ada", "own", "vip", "--none").expect(t, exitOK, "list vip belongs to -")
	r.as("olga", "query", "vip", "a").expect(t, exitOK, "a   yes")
	r.as("shop", "query", "vip", "a").expect(t, exitFailure, "not_found")
	r.as("olga", "grant", "vip", "--to", "otto", "--may", "edit,query").expect(t, exitFailure, "permission_denied")
	r.as("ada", "grant", "vip", "--to", "otto", "--may", "edit,query").expect(t, exitOK, "otto   edit,query")
	r.as("olga", "query", "vip", "a").expect(t, exitFailure, "permission_denied")
	r.ctl(t, "audit", "--token", "ada-token").expect(
		t, exitOK, "otto may edit,query", "1 added, 0 removed", "owner none")
	r.as("ada", "grant", "vip", "--to", "otto", "--revoke").expect(t, exitOK, "TOKEN  MAY\n", "open to all operators")
	r.as("olga", "query", "vip", "a").expect(t, exitOK, "a   yes")

	// Nor does a page of lists tell of it.
	if page := r.get("other", "/v1/lists?limit=1"); strings.Contains(page, "free") || strings.Contains(page, "vip") {
		t.Errorf("a page of another tenant is %s; want no name of a list", page)
	}
}
