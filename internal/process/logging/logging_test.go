package logging_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/logging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger, err := logging.New(logging.Config{Level: "warn"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	logger.Info("replica.started")
	logger.Named("api").Warn("http.request_failed", zap.String(logging.FieldReplica, "r1"))
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("expected one JSON line: %v\n%s", err, out.String())
	}
	if _, ok := line["time"].(string); !ok {
		t.Error("no time in", line)
	}
	delete(line, "time")
	for field, want := range map[string]string{"level": "warn", "logger": "api", "event": "http.request_failed", "replica": "r1"} {
		if line[field] != want {
			t.Errorf("%s is %v, expected %s", field, line[field], want)
		}
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger, err := logging.New(logging.Config{Format: "console"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	logger.Debug("not.shown")
	logger.Info("replica.started", zap.Int("cells", 1))
	if got := out.String(); !strings.Contains(got, "INFO\treplica.started\t{\"cells\": 1}") || strings.Contains(got, "not.shown") {
		t.Error(got)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, cfg := range []logging.Config{{Level: "loud"}, {Format: "text"}} {
		if _, err := logging.New(cfg, &bytes.Buffer{}); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
