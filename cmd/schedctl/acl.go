package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/redis/acl"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/script"
)

const aclTimeout = time.Minute

type aclCmd struct {
	Role         string   `required:"" enum:"agent,replica,operator,importer,lock,registry,list-reader,doctor" placeholder:"ROLE" help:"agent, replica (a scheduler), operator (reading), importer (schedctl nodes import), lock (package lock, schedctl lock run), registry (package registry), list-reader (package namelist) or doctor (scheduler doctor)."`
	Node         []string `placeholder:"NODE" help:"For agents: a user for this node alone, agent-NODE; can be repeated. Without, one user for all agents."`
	User         string   `placeholder:"NAME" help:"Name of the user (default: the role's, or agent-NODE)."`
	PasswordFile string   `placeholder:"FILE" help:"File that holds the user's password; only its hash is printed. Without, passwords stay as they are."`
	Add          bool     `help:"Add rights and take none away: before an upgrade, which has other scripts, and for a second password."`
	Format       string   `enum:"setuser,aclfile,json" default:"setuser" placeholder:"FORMAT" help:"setuser (for redis-cli), aclfile or json (default ${default})."`
	Cluster      bool     `help:"Redis is a cluster; --apply finds that out."`
	Apply        bool     `help:"Set the users on every server at --redis-url and on its replicas, as a user with that right."`
	redisFlags
	KeyPrefix string `default:"scheduler" env:"FREESLOT_REDIS__KEY_PREFIX" placeholder:"PREFIX" help:"First part of every key (default ${default})."`
	Cells     int    `default:"1" env:"FREESLOT_REDIS__CELLS" placeholder:"N" help:"Number of cells of the system, redis.cells (default ${default})."`
	lockPrefix
	Namespace string   `placeholder:"NAME" help:"Namespace of the registry, for role registry (default: none)."`
	List      []string `placeholder:"LIST" help:"For list-reader: a list that it may read; can be repeated. Without, all lists."`
}

// Run prints the users, or sets them.
func (c *aclCmd) Run(a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(a.ctx, aclTimeout)
	defer cancel()
	var topology *redisclient.Topology
	if c.Apply {
		var err error
		if topology, err = redisclient.Inspect(ctx, c.config()); err != nil {
			return fmt.Errorf("redis cannot be used: %w (--redis-url)", err)
		}
		c.Cluster = topology.Cluster
	}
	users, err := c.users()
	if err != nil {
		return err
	}
	if c.Apply {
		return c.apply(ctx, a, topology, users)
	}
	return c.print(a, users)
}

func (c *aclCmd) check() error {
	switch {
	case len(c.Node) > 0 && c.Role != string(script.RoleAgent):
		return usage("--node is for --role agent")
	case c.User != "" && len(c.Node) > 1:
		return usage("--user names one user, and there is one for each --node")
	case c.Format == "aclfile" && c.PasswordFile == "":
		return usage("--format aclfile needs --password-file: a file has all of a user, the password too")
	case c.Format == "aclfile" && c.Add:
		return usage("--format aclfile has all of a user: leave --add out")
	case c.Cells < 1 || c.Cells > cell.MaxCells:
		return usage("--cells is %d, expected 1 to %d", c.Cells, cell.MaxCells)
	}
	if c.Namespace != "" && c.Role != string(script.RoleRegistry) {
		return usage("--namespace is for --role registry")
	}
	if len(c.List) > 0 && c.Role != string(script.RoleListReader) {
		return usage("--list is for --role list-reader")
	}
	for _, list := range c.List {
		if err := namelist.ValidateName("--list", list); err != nil {
			return usageError{err}
		}
	}
	names := append([]string{c.KeyPrefix, c.LockKeyPrefix}, c.Node...)
	if c.Namespace != "" {
		names = append(names, c.Namespace)
	}
	for _, name := range names {
		if err := freeslot.ValidateName("name", name); err != nil {
			return usage("%q is no name of a node or a prefix: %w", name, err)
		}
	}
	if c.User != "" {
		if err := freeslot.ValidateName("--user", c.User); err != nil {
			return usageError{err}
		}
	}
	return nil
}

func (c *aclCmd) users() ([]acl.User, error) {
	password := ""
	if c.PasswordFile != "" {
		data, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("read the password: %w", err)
		}
		if password = strings.TrimRight(strings.TrimPrefix(string(data), "\ufeff"), "\r\n"); password == "" {
			return nil, fmt.Errorf("read the password: %s is empty", c.PasswordFile)
		}
	}
	layouts := script.Layouts(c.KeyPrefix, c.Cells, c.Cluster)
	locks := script.Layout{Prefix: c.LockKeyPrefix, Sharded: c.Cluster}
	switch script.Role(c.Role) {
	case script.RoleLock:
		layouts = []script.Layout{locks}
	case script.RoleReplica, script.RoleOperator, script.RoleImporter: // they show locks, or import nodes under one
		layouts = append(layouts, locks)
	case script.RoleRegistry:
		layouts = []script.Layout{{Prefix: registry.Prefix(c.KeyPrefix, c.Namespace), Sharded: c.Cluster}}
	case script.RoleListReader:
		layouts = []script.Layout{namelist.ControlLayout(c.KeyPrefix, c.Cluster)}
	}
	user := func(name, node string, of ...script.Layout) (acl.User, error) {
		if c.User != "" {
			name = c.User
		}
		rights, err := acl.Of(script.Role(c.Role), node, of, replica.Access()...)
		return acl.User{Name: name, Rights: rights, Password: password, Add: c.Add}, err
	}
	if len(c.List) > 0 { // one user for all of them
		all := acl.User{}
		for _, list := range c.List {
			u, err := user(c.Role, list, layouts...)
			if err != nil {
				return nil, err
			}
			u.Rights = u.Rights.With(all.Rights)
			all = u
		}
		return []acl.User{all}, nil
	}
	if len(c.Node) == 0 {
		u, err := user(c.Role, script.AnyNode, layouts...)
		return []acl.User{u}, err
	}
	users := make([]acl.User, len(c.Node))
	for i, node := range c.Node {
		var err error
		if users[i], err = user("agent-"+node, node, layouts[cell.NodeCell(node, c.Cells)]); err != nil {
			return nil, err
		}
	}
	return users, nil
}

func (c *aclCmd) print(a *app, users []acl.User) error {
	if c.Format == "json" || a.json {
		type user struct {
			Name  string   `json:"name"`
			Rules []string `json:"rules"`
		}
		out := make([]user, len(users))
		for i, u := range users {
			out[i] = user{u.Name, u.Rules()}
		}
		return a.printJSON(map[string]any{"users": out})
	}
	for _, u := range users {
		line := u.Command()
		if c.Format == "aclfile" {
			line = u.Line()
		}
		if err := a.println("%s", line); err != nil {
			return err
		}
	}
	return nil
}

// set sets the users. The audit has an entry of it.
func (c *aclCmd) set(
	ctx context.Context, a *app, topology *redisclient.Topology, users []acl.User,
) (done []acl.Applied, err error) {
	clients, err := topology.Open(redisclient.Commands)
	if err != nil {
		return nil, err
	}
	defer clients.Close()
	names := make([]string, len(users))
	for i, u := range users {
		names[i] = u.Name
	}
	first := script.Layouts(c.KeyPrefix, c.Cells, c.Cluster)[0]
	target := "role " + c.Role + ": " + strings.Join(names, ", ")
	change := a.recordWhereSystemIs(ctx, clients.For(0), first, &c.redisFlags, callApplyACL, target)
	done, err = acl.Apply(ctx, topology, users)
	change.Note("", "set on "+plural.Of(len(done), "server", "servers"))
	change.End(ctx, outcomeOf(err))
	return done, err
}

func (c *aclCmd) apply(ctx context.Context, a *app, topology *redisclient.Topology, users []acl.User) error {
	done, err := c.set(ctx, a, topology, users)
	for _, at := range done {
		note := "saved in its ACL file"
		if !at.Saved {
			note = "gone with its next restart: it has no ACL file (aclfile in redis.conf)"
		}
		if err := a.println("%s: %s set, %s", at.Addr, plural.Of(len(users), "user", "users"), note); err != nil {
			return err
		}
		for _, name := range at.NoPassword {
			if err := a.println(
				"%s: %s has no password, so no client can connect as it yet: set one with --password-file", at.Addr, name,
			); err != nil {
				return err
			}
		}
	}
	return err
}
