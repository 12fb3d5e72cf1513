package main

import (
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway"
)

type tokenCmd struct {
	ID          string        `arg:"" name:"node-id" help:"The node, or a pattern such as 'gpu-*'."`
	Name        string        `placeholder:"NAME" help:"Name of the owner (default: the node's id). A second token of the same name can replace the first while the node runs."`
	Node        []string      `sep:"," placeholder:"PATTERN" help:"Further nodes that it may be. Can be repeated."`
	Expires     time.Duration `placeholder:"DURATION" help:"How long it is good for, such as 90d (default: for ever)."`
	Certificate string        `placeholder:"NAME" help:"The name in the node's certificate that must come with it (subject or alternative name, or a pattern). The schedulers need client_ca_file."`
	Service     []string      `sep:"," placeholder:"PATTERN" help:"Only these services. Can be repeated."`
	Pool        []string      `sep:"," placeholder:"PATTERN" help:"Only these pools. Can be repeated."`
	Label       []string      `sep:"none" placeholder:"NAME=PATTERN" help:"Only these labels with these values. Can be repeated, also for one label."`
	Capability  []string      `sep:"," placeholder:"PATTERN" help:"Only these languages and features. Can be repeated."`
	Slots       int           `placeholder:"N" help:"At most this many slots."`
}

// Help is shown below the flags.
func (tokenCmd) Help() string {
	return `The token goes to standard output, for the token_file of the node's agent. The line for gateway.tokens_file of
the schedulers goes to standard error. It has a hash alone: nothing keeps the token. No server is asked.

  schedctl nodes token gpu-7 --expires 90d --service tts > token`
}

// Run makes a token and prints it with its line.
func (c *tokenCmd) Run(a *app) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	secret, digest := gateway.NewSecret()
	token.Digest = digest
	line, err := token.Line()
	if err != nil {
		return usageError{err}
	}
	return a.printToken("gateway.tokens_file", secret, line)
}

func (c *tokenCmd) token() (*gateway.Token, error) {
	token := &gateway.Token{
		Name: c.Name, Nodes: append([]string{c.ID}, c.Node...), Services: c.Service, Pools: c.Pool,
		Capabilities: c.Capability, Slots: c.Slots, Certificate: c.Certificate,
	}
	if c.Name == "" {
		token.Name = c.ID
		if freeslot.ValidateName("", c.ID) != nil {
			return nil, usage("%q is a pattern, which needs --name", c.ID)
		}
	}
	if c.Expires > 0 {
		token.Expires = time.Now().Add(c.Expires)
	}
	for _, text := range c.Label {
		label, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usage("--label is %q, expected NAME=PATTERN", text)
		}
		if token.Labels == nil {
			token.Labels = make(map[string][]string)
		}
		token.Labels[label] = append(token.Labels[label], value)
	}
	return token, nil
}
