package nodeagent

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/healthcheck"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/reference"
)

func TestReference(t *testing.T) {
	t.Parallel()
	defaults := DefaultConfig()
	defaults.Node.ID = "" // the host's name
	defaults.Services = []Service{{HTTP: &HTTP{}, Command: &Command{}, Check: &healthcheck.Config{HTTP: &healthcheck.HTTP{}}}}
	defaults.Metrics.Commands = []MetricsCommand{{}}
	defaults.Resolve(func(string) bool { return false }, new(config.Problems))
	reference.Check(t, "nodeagent-config.md", "Keys", reference.Table(t, defaults))
}

// TestStopLimitIsDocumented: a service manager that waits for the documented time does not kill an
// agent that stops in good order.
func TestStopLimitIsDocumented(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Services = []Service{{Name: "a", Command: &Command{KillGrace: 20 * time.Second}}}
	more := cfg.StopLimit() - cfg.StopTimeout - cfg.Services[0].Command.KillGrace
	for _, file := range []string{"../../docs/nodeagent.md", "../../deploy/nodeagent.service"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`stop_timeout, the longest kill_grace and (\d+) s more`).FindSubmatch(data)
		if found == nil {
			t.Errorf("%s does not say how long a stop takes", file)
			continue
		}
		if n, err := strconv.Atoi(string(found[1])); err != nil || time.Duration(n)*time.Second < more {
			t.Errorf("%s has %s s more, the agent takes up to %s (%v)", file, found[1], more, err)
		}
	}
}
