package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// tokenTimeout is long enough for a person who signs in at a browser.
const tokenTimeout = 5 * time.Minute

// tokenOf runs a command that prints a token. It may ask on the terminal.
func tokenOf(env *environment, command string) (string, error) {
	words := strings.Fields(command)
	if len(words) == 0 {
		return "", usage("--token-command is empty, expected a program and its arguments")
	}
	ctx, cancel := context.WithTimeout(env.ctx, tokenTimeout)
	defer cancel()
	run := exec.CommandContext(ctx, words[0], words[1:]...)
	run.Stdin, run.Stderr = env.in, env.err
	out, err := run.Output()
	token := strings.TrimSpace(string(out))
	if err == nil && token == "" {
		err = errors.New("it printed nothing")
	}
	if err != nil {
		return "", fmt.Errorf("get a token by %s: %w", words[0], err)
	}
	return token, nil
}
