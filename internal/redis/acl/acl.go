// Package acl makes users of Redis' ACL from the features' needs by role: see script.Access.
package acl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

const callTimeout = 5 * time.Second

// User is one user of Redis.
type User struct {
	Name   string
	Rights Rights
	// Password replaces the user's passwords; with Add it is an additional one. Empty leaves them
	// as they are: a new user has none, and no one can log in as it.
	Password string
	// Add gives rights and takes none away. That is needed while two releases with different
	// scripts run.
	Add bool
}

// Rules returns the arguments of ACL SETUSER behind the name. They contain only the hash of the
// password.
func (u User) Rules() []string {
	rules := []string{"on"}
	if u.Password != "" {
		sum := sha256.Sum256([]byte(u.Password))
		if !u.Add {
			rules = append(rules, "resetpass")
		}
		rules = append(rules, "#"+hex.EncodeToString(sum[:]))
	}
	if u.Add {
		return append(rules, u.Rights.Additions()...)
	}
	return append(rules, u.Rights.Rules()...)
}

// Command returns the command that sets the user, in the form for redis-cli.
func (u User) Command() string {
	return "ACL SETUSER " + u.Name + " " + strings.Join(u.Rules(), " ")
}

// Line returns the user as a line of an ACL file.
func (u User) Line() string { return "user " + u.Name + " " + strings.Join(u.Rules(), " ") }

// Applied is one server on which the users were set.
type Applied struct {
	Addr string `json:"addr"`
	// Saved is true if the server keeps them in its ACL file. Otherwise they are gone with its next
	// restart, unless they are in its configuration.
	Saved bool `json:"saved"`
	// NoPassword names the users that have no password there and so cannot connect.
	NoPassword []string `json:"no_password,omitempty"`
}

// Apply sets users on every server that t names, and on their replicas, because servers do not tell
// each other about users. Whatever was done before an error stays.
func Apply(ctx context.Context, t *redisclient.Topology, users []User) ([]Applied, error) {
	clients, err := t.Open(redisclient.Commands)
	if err != nil {
		return nil, err
	}
	defer clients.Close()
	var done []Applied
	var errs []error
	for server, client := range clients.All() {
		addrs, err := redisclient.Servers(ctx, client)
		if err != nil {
			errs = append(errs, err)
		}
		for _, addr := range addrs {
			at, err := applyAt(ctx, t.Config(server), addr, users)
			if err != nil {
				errs = append(errs, fmt.Errorf("redis at %s: %w", addr, err))
				continue
			}
			done = append(done, at)
		}
	}
	return done, errors.Join(errs...)
}

func applyAt(ctx context.Context, c redisclient.Config, addr string, users []User) (Applied, error) {
	at := Applied{Addr: addr}
	client, err := redisclient.At(c, addr)
	if err != nil {
		return at, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, u := range users {
		cmd := client.B().AclSetuser().Username(u.Name).Rule(u.Rules()...).Build()
		if err := client.Do(ctx, cmd).Error(); err != nil {
			return at, fmt.Errorf("set user %s: %w", u.Name, err)
		}
		if u.Password == "" && noPassword(ctx, client, u.Name) {
			at.NoPassword = append(at.NoPassword, u.Name)
		}
	}
	err = client.Do(ctx, client.B().AclSave().Build()).Error()
	if err != nil && strings.Contains(err.Error(), "not configured to use an ACL file") {
		return at, nil
	}
	if err != nil {
		return at, fmt.Errorf("save users: %w", err)
	}
	at.Saved = true
	return at, nil
}

// noPassword reports whether the user has no password; false if that cannot be read. A client that
// may set users may be barred from reading them.
func noPassword(ctx context.Context, client rueidis.Client, user string) bool {
	said, err := client.Do(ctx, client.B().AclGetuser().Username(user).Build()).ToMap()
	if err != nil {
		return false
	}
	passwords, flags := said["passwords"], said["flags"]
	list, err := passwords.ToArray()
	if err != nil || len(list) > 0 {
		return false
	}
	set, err := flags.AsStrSlice()
	return err == nil && !slices.Contains(set, "nopass")
}
