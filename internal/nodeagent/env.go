package nodeagent

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/internal/process/tracing"
	"github.com/freeslot/freeslot/worker"
)

const (
	// maxPayloadFields and maxFieldBytes bound the variables from a payload: the kernel limits all
	// variables and arguments together.
	maxPayloadFields = 64
	maxFieldBytes    = 8 << 10
)

// environ returns the environment of one command: the agent's variables that are passed on, the
// configured ones, then the job's. Later ones win.
func (c *commandExecutor) environ(ctx context.Context, job *worker.Job) []string {
	env := slices.Clone(c.fixedEnv)
	set := func(name, value string) {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	for name, field := range jobFields {
		set("FREESLOT_"+strings.ToUpper(name), field(job))
	}
	set("FREESLOT_PROGRESS_FD", progressFD)
	set("TRACEPARENT", tracing.TraceParent(ctx))
	return appendPayloadFields(env, job.Payload)
}

// fixedEnviron returns the part that does not depend on the job. as is the user that the command
// runs as, if not the agent's.
func fixedEnviron(cfg Command, as *account) []string {
	env := []string{} // nil would mean all of the agent's variables
	for _, name := range cfg.PassEnv {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if as != nil {
		env = append(env, "HOME="+as.home, "USER="+as.name, "LOGNAME="+as.name)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Env)) {
		env = append(env, name+"="+cfg.Env[name])
	}
	return env
}

var fieldName = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

// appendPayloadFields adds FREESLOT_PAYLOAD_<FIELD> for the texts, numbers and booleans at the top
// of a payload that is an object. Because of the prefix a payload cannot set a variable that means
// something to a program.
func appendPayloadFields(env []string, payload json.RawMessage) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(payload, &fields) != nil {
		return env
	}
	seen := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		variable := "FREESLOT_PAYLOAD_" + strings.ToUpper(name)
		value, ok := scalar(fields[name])
		// If there are "text" and "TEXT", the first in order counts.
		if !ok || !fieldName.MatchString(name) || seen[variable] || len(seen) == maxPayloadFields {
			continue
		}
		seen[variable] = true
		env = append(env, variable+"="+value)
	}
	return env
}

// scalar returns the text of a JSON string, number or boolean, if that can be a variable.
func scalar(raw json.RawMessage) (string, bool) {
	text := string(raw)
	switch {
	case text == "" || text == "null" || text[0] == '{' || text[0] == '[':
		return "", false
	case text[0] == '"':
		if json.Unmarshal(raw, &text) != nil {
			return "", false
		}
	}
	return text, len(text) <= maxFieldBytes && !strings.ContainsRune(text, 0)
}
