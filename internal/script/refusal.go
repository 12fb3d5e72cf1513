package script

import (
	"errors"
	"strings"

	"github.com/redis/rueidis"
)

// refusals maps the codes by which Redis refuses a call because of its own state to their meanings.
// Such a refusal comes before a script's first write or not at all. Redis may still answer reads.
var refusals = map[string]string{
	"CLUSTERDOWN": "hash slots of the cluster are not served",
	"LOADING":     "it is loading its data",
	"MASTERDOWN":  "it is a replica whose master is away",
	"MISCONF":     "it cannot save its data; its own log has the cause",
	"NOPERM":      "its user lacks a right",
	"NOREPLICAS":  "it has fewer replicas than its min-replicas-to-write",
	"READONLY":    "it is a replica, and its address leads to no master",
}

// Refusal returns the code of such a refusal, and the code with its meaning for a message to
// people. Both are empty for any other error.
func Refusal(err error) (code, reason string) {
	var answer *rueidis.RedisError
	if !errors.As(err, &answer) {
		return "", ""
	}
	code, text, _ := strings.Cut(answer.Error(), " ")
	meaning, known := refusals[code]
	// Redis checks the permission of each command in a script when it runs. Earlier commands of the
	// script may have written.
	if !known || code == "NOPERM" && strings.Contains(text, "script") {
		return "", ""
	}
	return code, code + " (" + meaning + ")"
}
