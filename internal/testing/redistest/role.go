package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

const (
	// RoleEnv is the environment variable that, set to "default", makes the tests of MainAs connect
	// as the default user, who may do anything.
	RoleEnv = "FREESLOT_TEST_ROLE"

	rolePassword = "role-password"
	deniedLimit  = 2 * time.Second
)

// commandOf finds the command in a line of CLIENT LIST.
var commandOf = regexp.MustCompile(`cmd=\S+`)

// Role is a user of Redis with the rights of the code under test.
type Role struct {
	Name string
	// Rules are the arguments of ACL SETUSER.
	Rules []string
	// Scripts are loaded into every server at its start, for users who may not load them.
	Scripts []string
}

// role belongs to the whole test binary, like shared. It is set before any test runs.
var role *Role

// MainAs is Main for tests that show that the rights of a role suffice for the code under test. The
// URL of a Target names a user with that role, and Client connects as the default user, who may do
// anything. If Redis denied the user a command, the test at whose end the server stops fails.
func MainAs(m *testing.M, as Role, options ...goleak.Option) {
	if os.Getenv(RoleEnv) != "default" {
		role = &as
	}
	Main(m, options...)
}

// own returns a Target on a server that was started here.
func own(name string, cluster bool, addrs ...string) *Target {
	t := At(name, cluster, addrs...)
	if role != nil {
		t.user = role.Name
	}
	return t
}

// AdminURL returns the URL for the default user.
func (r *Target) AdminURL() string {
	admin := *r
	admin.user = ""
	return admin.URL()
}

// RoleClient returns a client with the rights of the user in URL.
func (r *Target) RoleClient(tb testing.TB, options ...func(*rueidis.ClientOption)) rueidis.Client {
	tb.Helper()
	if r.user == "" {
		return r.Client(tb, options...)
	}
	return r.Client(tb, append([]func(*rueidis.ClientOption){func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.ClientSetInfo = r.user, rolePassword, rueidis.DisableClientSetInfo
	}}, options...)...)
}

// userArgs makes the server know the user from its start on, except a sentinel, to which other
// users log in.
func userArgs(args []string) []string {
	if role == nil || slices.Contains(args, "--sentinel") {
		return nil
	}
	return append([]string{"--user", role.Name, "on", ">" + rolePassword}, role.Rules...)
}

func loadScripts(ctx context.Context, proc *redisserver.Server) error {
	if role == nil || len(role.Scripts) == 0 {
		return nil
	}
	c, err := connect(ctx, proc.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	for _, text := range role.Scripts {
		switch err := c.Do(ctx, c.B().ScriptLoad().Script(text).Build()).Error(); {
		case err != nil && strings.Contains(err.Error(), "unknown command"): // a sentinel
			return nil
		case err != nil:
			return fmt.Errorf("load a script: %w", err)
		}
	}
	return nil
}

// checkDenied fails for each command, key and channel that the user was denied. A server that is
// away cannot tell.
func checkDenied(proc *redisserver.Server) error {
	if role == nil || proc.PID() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), deniedLimit)
	defer cancel()
	entries, err := Ask(ctx, proc.Addr(), "ACL", "LOG").ToArray()
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	var denied []error
	for _, entry := range entries {
		e, err := entry.AsMap()
		if err != nil {
			return fmt.Errorf("ACL LOG: %w", err)
		}
		text := func(field string) string {
			m := e[field]
			s, _ := m.ToString()
			return s
		}
		if text("username") == role.Name && text("reason") != "auth" {
			denied = append(
				denied,
				fmt.Errorf(
					"redis has denied %s %s %s (%s; %s)", role.Name, text("reason"), text("object"), text("context"),
					commandOf.FindString(text("client-info")),
				),
			)
		}
	}
	return errors.Join(denied...)
}
