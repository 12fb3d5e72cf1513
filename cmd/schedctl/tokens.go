package main

import (
	"fmt"
	"os"
	"time"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/plural"
)

type tokensCmd struct {
	New   tokensNewCmd   `cmd:"" help:"Make a token of a caller, and its line for the schedulers' tokens_file."`
	Check tokensCheckCmd `cmd:"" help:"Show what is wrong with a tokens_file."`
	LS    tokensListCmd  `cmd:"" name:"ls" help:"List the tokens that a replica knows, callers' and nodes', and what is wrong with them."`
}

type tokensNewCmd struct {
	Name    string        `arg:"" help:"Name of the owner. A second token of the same name can replace the first while it is used."`
	Tenant  string        `required:"" placeholder:"TENANT" help:"The tenant that owns the caller's jobs."`
	Role    identity.Role `default:"client" placeholder:"ROLE" help:"viewer, client, tenant-operator, operator or admin (default ${default})."`
	Expires time.Duration `placeholder:"DURATION" help:"How long it is good for, such as 90d (default: for ever)."`

	List     []string `sep:"," placeholder:"PATTERN" help:"Name lists that it may read, such as 'vip-*'; none unless given. Can be repeated, as the next ones."`
	Service  []string `sep:"," placeholder:"PATTERN" help:"Services that it may discover; none unless given. Jobs are not restricted."`
	Document []string `sep:"," placeholder:"PATTERN" help:"Configuration documents that it may read; none unless given."`
}

// Help is shown below the flags.
func (tokensNewCmd) Help() string {
	return `The token goes to standard output, for the caller. Its line for tokens_file of the schedulers goes to standard error.
It has a hash alone: nothing keeps the token. No server is asked.

  schedctl tokens new ci --tenant acme --expires 90d --list 'vip-*' > token`
}

// Run makes a token and prints it with its line.
func (c *tokensNewCmd) Run(a *app) error {
	p := identity.Principal{Name: c.Name, Tenant: c.Tenant, Role: c.Role}
	p.Scopes = identity.Scopes{Lists: c.List, Services: c.Service, Documents: c.Document}
	if c.Role.Scoped() { // what is not given is closed
		p.Scopes.Lists = append([]string{}, c.List...)
		p.Scopes.Services = append([]string{}, c.Service...)
		p.Scopes.Documents = append([]string{}, c.Document...)
	}
	if c.Expires > 0 {
		p.Expires = time.Now().Add(c.Expires)
	}
	secret, line, err := identity.NewToken(p)
	if err != nil {
		return usageError{err}
	}
	return a.printToken("tokens_file", secret, line)
}

// printToken prints a new token, and its line for the file of this configuration key.
func (a *app) printToken(key, secret, line string) error {
	if a.json {
		return a.printJSON(struct {
			Token string `json:"token"`
			Line  string `json:"line"`
		}{secret, line})
	}
	fmt.Fprintf(a.err, "# A line for %s:\n%s\n", key, line)
	fmt.Fprintln(a.out, secret)
	return nil
}

type tokensCheckCmd struct {
	File string `arg:"" help:"The file."`
}

// Run prints all problems of the file, or how many tokens it has.
func (c *tokensCheckCmd) Run(a *app) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return err
	}
	tokens, problems := identity.CheckTokens(text)
	for _, p := range problems {
		fmt.Fprintf(a.err, "%s: %v\n", c.File, p)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s has %s", c.File, plural.Of(len(problems), "problem", "problems"))
	}
	fmt.Fprintf(a.out, "%s has %s\n", c.File, plural.Of(tokens, "token", "tokens"))
	return nil
}
