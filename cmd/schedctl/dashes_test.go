package main

import (
	"strings"
	"testing"
)

// TestFlagsBehindTheCommand: of flags behind a command to run nobody knows whose they are, so they
// are refused with what to write; those behind -- are the command's.
func TestFlagsBehindTheCommand(t *testing.T) {
	t.Parallel()
	for line, instead := range map[string]string{
		"lock run k echo -v":                             "schedctl lock run k -- echo -v",
		"lock run k echo a -h":                           "schedctl lock run k -- echo a -h",
		"lock run k echo --fair":                         "schedctl lock run k -- echo --fair",
		"lock run k echo a --wait=1s":                    "schedctl lock run k -- echo a --wait=1s",
		"lock run --wait 1s k echo -v":                   "schedctl lock run --wait 1s k -- echo -v",
		"lock run --fair k echo -v":                      "schedctl lock run --fair k -- echo -v",
		"-o json lock run k curl -o file":                "schedctl -o json lock run k -- curl -o file",
		"-ojson lock run k echo a;b -v":                  "schedctl -ojson lock run k -- echo 'a;b' -v",
		"lock run k sh -c x -- y":                        "schedctl lock run k -- sh -c x -- y",
		"registry run shop --port 1 ./shop --verbose":    "schedctl registry run shop --port 1 -- ./shop --verbose",
		"registry run shop ./shop --port 1":              "schedctl registry run shop -- ./shop --port 1",
		"registry run --label a=b shop --port 1 echo -v": "schedctl registry run --label a=b shop --port 1 -- echo -v",
	} {
		got := command(t, "", strings.Fields(line)...).expect(t, exitUsage, "write -- before", "\n  "+instead+"\n")
		if strings.Contains(got.err, "unknown flag") || got.out != "" {
			t.Errorf(`%s: %+v; want not strings.Contains(got.err, "unknown flag"), got.out == ""`, line, got)
		}
	}
	// All of these come as far as Redis.
	for _, line := range []string{
		"lock run k -- echo -v", "lock run k --wait 1s -- echo -h", "lock run k echo a -", "lock run -- k echo -v", "lock run k -- echo -wait",
	} {
		args := append([]string{"lock", "run", "--redis-url", "redis://127.0.0.1:1"}, strings.Fields(line)[2:]...)
		command(t, "", args...).expect(t, exitUnavailable, "--redis-url")
	}
	if got := command(t, "", "lock", "run", "k", "--nonsense", "--", "find", "-server").expect(t, exitUsage, "unknown flag --nonsense"); strings.Contains(got.err, "two dashes") {
		t.Errorf("a hint about a flag of the command: %s", got.err)
	}
}
