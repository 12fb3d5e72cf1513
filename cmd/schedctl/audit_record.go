package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"strconv"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/script"
)

// The changes that schedctl makes in Redis itself, as the audit calls them.
const (
	callImportNodes = "import-nodes"
	callApplyACL    = "apply-acl"
)

// record begins the entry of a change that schedctl makes in Redis itself. first belongs to the
// first cell. The caller ends the change. It is made even if Redis cannot record it.
func (a *app) record(ctx context.Context, first *script.Runner, f *redisFlags, call, target string) *audit.Change {
	who := identity.Principal{Name: f.user(), Role: audit.RoleRedis}
	log := audit.New(audit.Config{Replica: "schedctl"}, first, zap.NewNop(), nil)
	c, err := log.Begin(ctx, &who, call, target, caller(), a.reason)
	if err == nil && c.Lost != nil {
		a.warn("the audit does not have this change: %v", c.Lost)
	}
	return c
}

// recordWhereSystemIs does what record does on a server that has a system with this layout. On
// another one, such as a server of lists, no one reads the audit.
func (a *app) recordWhereSystemIs(
	ctx context.Context, client rueidis.Client, l script.Layout, f *redisFlags, call, target string,
) *audit.Change {
	there, err := client.Do(ctx, client.B().Exists().Key(cell.Layout(l).Cells()).Build()).AsInt64()
	if err == nil && there == 0 {
		err = fmt.Errorf("this Redis has no system with the key prefix %s yet", l.Prefix)
	}
	if err != nil {
		a.warn("the audit does not have this change: %v", err)
		return nil
	}
	runner := script.NewRunner(script.Config{Layout: l, CallTimeout: aclTimeout}, client, zap.NewNop(), nil)
	return a.record(ctx, runner, f, call, target)
}

// outcomeOf returns the outcome of a change that ended with err.
func outcomeOf(err error) string { return cmp.Or(string(freeslot.CodeOf(err)), audit.OutcomeDone) }

// user returns the user of Redis that schedctl connects as.
func (f *redisFlags) user() string {
	named := f.RedisUsername
	if u, err := url.Parse(f.RedisURL[0]); err == nil && u.User != nil {
		named = cmp.Or(named, u.User.Username())
	}
	return cmp.Or(named, "default")
}

// caller returns user@machine, as this machine says.
func caller() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + cmp.Or(host, "unknown")
}
