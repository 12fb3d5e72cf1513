// Package logging builds the logger of a process and fixes the names that log lines share.
//
// The message of a line is the name of an event, a noun and a verb in the past ("replica.started",
// "http.request_failed"). Everything that varies is a field. Both are meant for searching. They do
// not change between releases without an entry in the changelog.
package logging

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The names of fields that more than one package logs.
const (
	FieldReplica = "replica"
	FieldNode    = "node"
	FieldJob     = "job_id"
	FieldTenant  = "tenant"
	FieldSession = "session_id"
	FieldAddress = "address"
	FieldReason  = "reason"
)

// Config decides what is logged, and in which format.
type Config struct {
	// Level is debug, info, warn or error; empty means info.
	Level string
	// Format is json or console; empty means json.
	Format string
}

// New builds a logger that writes lines to w. All goroutines share w, which need not be safe for
// concurrent use.
func New(cfg Config, w io.Writer) (*zap.Logger, error) {
	level := zapcore.InfoLevel
	if cfg.Level != "" {
		if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
			return nil, fmt.Errorf("log level %q: %w", cfg.Level, err)
		}
	}
	enc := zapcore.EncoderConfig{
		TimeKey:        "time",
		LevelKey:       "level",
		NameKey:        "logger",
		MessageKey:     "event",
		StacktraceKey:  "stack",
		LineEnding:     zapcore.DefaultLineEnding,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeTime:     zapcore.RFC3339NanoTimeEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}
	var encoder zapcore.Encoder
	switch cfg.Format {
	case "", "json":
		encoder = zapcore.NewJSONEncoder(enc)
	case "console":
		enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(enc)
	default:
		return nil, fmt.Errorf("log format %q: expected json or console", cfg.Format)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)
	return zap.New(core, zap.ErrorOutput(zapcore.Lock(zapcore.AddSync(w)))), nil
}
