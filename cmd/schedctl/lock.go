package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/lock/server"
)

const locksPath = "/v1/locks"

type lockCmd struct {
	Run  lockRunCmd  `cmd:"" help:"Run a command while a lock is held. It needs no scheduler."`
	Ls   lockLsCmd   `cmd:"" help:"List locks that were held or awaited for a second."`
	Show lockShowCmd `cmd:"" help:"Show a lock, and who waits for it."`
	Rm   lockRmCmd   `cmd:"" help:"Take a lock from its holder."`
	Log  lockLogCmd  `cmd:"" help:"List what rm has done."`
}

type lockLsCmd struct {
	Limit int `default:"1000" placeholder:"N" help:"At most this many locks (default ${default})."`
}

// Run lists locks by their names.
func (c *lockLsCmd) Run(a *app) error {
	if c.Limit < 1 {
		return usage("--limit is %d, expected at least 1", c.Limit)
	}
	query, all, seen := url.Values{}, []server.Lock{}, make(map[string]bool)
	for len(all) < c.Limit {
		query.Set("limit", strconv.Itoa(min(c.Limit-len(all), 1000)))
		var page server.LockPage
		if err := a.call(http.MethodGet, locksPath, query, nil, &page); err != nil {
			return err
		}
		for _, l := range page.Locks {
			if !seen[l.Key] { // a lock that moves can be listed twice
				seen[l.Key] = true
				all = append(all, l)
			}
		}
		if page.Cursor == "" {
			break
		}
		query.Set("cursor", page.Cursor)
	}
	all = all[:min(len(all), c.Limit)]
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{"LOCK", "HOLDER", "SINCE", "RENEWED", "LEFT", "WAITING", "TOKEN", "STATE"}}
	for i := range all {
		l := &all[i]
		rows = append(
			rows,
			[]string{
				l.Key, dash(l.Holder), clock(l.SinceMS), clock(l.RenewedMS), leftText(l), fmt.Sprint(l.Waiting), dash(l.Token),
				lockState(l),
			},
		)
	}
	return table(a.out, rows)
}

func leftText(l *server.Lock) string {
	switch {
	case !l.Held:
		return "-"
	case l.LeftMS < 0:
		return "no end"
	}
	return (time.Duration(l.LeftMS) * time.Millisecond).String()
}

func lockState(l *server.Lock) string {
	switch {
	case l.Problem != "":
		return l.Problem
	case l.Revoked != "":
		return "revoked: " + l.Revoked
	case l.Released:
		return "given back, kept for its least time"
	case l.Granted:
		return "given to a waiter"
	case l.Held:
		return "held"
	default:
		return "free"
	}
}

// oneLock names a lock.
type oneLock struct {
	Key string `arg:"" name:"key" help:"Name of the lock."`
}

// path escapes dots, too: a server would take "." and ".." for folders.
func (c *oneLock) path() string {
	return locksPath + "/" + strings.ReplaceAll(url.PathEscape(c.Key), ".", "%2E")
}

type lockShowCmd struct{ oneLock }

// Run shows one lock.
func (c *lockShowCmd) Run(a *app) error {
	var l server.Lock
	if err := a.call(http.MethodGet, c.path(), nil, nil, &l); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(l)
	}
	rows := [][]string{
		{"lock", l.Key},
		{"state", lockState(&l)},
		{"holder", dash(l.Holder)},
		{"since", clock(l.SinceMS)},
		{"renewed", clock(l.RenewedMS)},
		{"left", leftText(&l)},
		{"token", dash(l.Token)},
		{"entries", fmt.Sprint(l.Entries)},
		{"waiting", fmt.Sprint(l.Waiting)},
	}
	for i, w := range l.Waiters {
		silent := "not heard of"
		if w.SilentMS >= 0 {
			silent = "heard of " + (time.Duration(w.SilentMS) * time.Millisecond).String() + " ago"
		}
		rows = append(rows, []string{fmt.Sprintf("waiter %d", i+1), w.Holder + ", " + silent})
	}
	return table(a.out, rows)
}

type lockRmCmd struct {
	oneLock
	Token  string `name:"if-token" placeholder:"TOKEN" help:"Only if the lock is held with this token, as show has it."`
	Now    bool   `help:"Delete the lock at once. Until its next check the old holder may be at work beside the next one."`
	Author string `env:"USER" placeholder:"NAME" help:"Who, for the log (default: the user of this shell)."`
}

// Help is shown below the flags.
func (lockRmCmd) Help() string {
	return `The holder stops at its next check (within 5 s with the defaults), and gives the lock back; if it is dead, the lock is
free when its lease is over. It needs --reason. --now is for a lock that must be free at once, and means that two can be at work for a while.`
}

// Run revokes a lock.
func (c *lockRmCmd) Run(a *app) error {
	if a.reason == "" {
		return usage("--reason is missing, expected why the lock is revoked, for its holder and the log")
	}
	request := server.RevokeRequest{Reason: a.reason, Author: c.Author, Token: c.Token, Now: c.Now}
	var result server.RevokeResult
	if err := a.call(http.MethodPost, c.path()+"/revoke", nil, request, &result); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(result)
	}
	return a.println("%s with token %s is revoked: %s", result.Key, result.Token, result.Text)
}

type lockLogCmd struct {
	Limit int `default:"100" placeholder:"N" help:"At most this many entries (default ${default}), at most 1000."`
}

// Run lists what was revoked, the newest first.
func (c *lockLogCmd) Run(a *app) error {
	var log server.AuditLog
	if err := a.call(
		http.MethodGet, "/v1/lock-audit", url.Values{"limit": {strconv.Itoa(c.Limit)}}, nil, &log,
	); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(log.Entries)
	}
	rows := [][]string{{"WHEN", "LOCK", "HOLDER", "TOKEN", "BY", "HOW", "REASON"}}
	for _, e := range log.Entries {
		rows = append(
			rows,
			[]string{
				clock(e.AtMS), e.Key, e.Holder, e.Token, e.Operator, map[bool]string{true: "at once", false: "asked"}[e.Now],
				e.Reason,
			},
		)
	}
	return table(a.out, rows)
}
