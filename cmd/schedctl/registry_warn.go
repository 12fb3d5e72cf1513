package main

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/freeslot/freeslot/internal/process/logging"
)

// warned holds the provider's warnings in words for people who run a command.
var warned = map[string]string{
	"registry.starts_without_redis": "not registered yet, because Redis does not answer; the command runs",
	"registry.redis_lost":           "Redis does not answer; the command runs",
	"registry.call_failed":          "Redis did not take a call, which is repeated; the command runs",
	"registry.conflict":             "not registered yet, because another provider has the id; the command runs",
	"registry.superseded": "not registered any more, because another provider has taken the id over; the " +
		"command runs",
	"registry.host_refused":    "not registered",
	"registry.cleanup_failed":  "silent instances of the service are not removed now",
	"collector.failed":         "figures cannot be collected",
	"collector.fields_dropped": "some figures cannot be sent",
	"collector.left_out":       "figures are left out, because they are too long together",
}

// warnings returns a log whose warnings are lines on standard error.
func (a *app) warnings() *zap.Logger {
	return zap.New(warnCore{LevelEnabler: zapcore.WarnLevel, app: a})
}

// warnCore writes each entry as a sentence with its error.
type warnCore struct {
	zapcore.LevelEnabler
	app    *app
	fields []zapcore.Field
}

// With adds fields that all entries have.
func (c warnCore) With(fields []zapcore.Field) zapcore.Core {
	c.fields = slices.Concat(c.fields, fields)
	return c
}

// Check takes warnings and everything worse.
func (c warnCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

// Write writes one line.
func (c warnCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	found := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(c.fields, fields) {
		f.AddTo(found)
	}
	text, known := warned[e.Message]
	if !known {
		text = e.Message
	}
	var parts []string
	for _, name := range []string{"type", "error", logging.FieldReason} {
		if value, ok := found.Fields[name]; ok {
			parts = append(parts, fmt.Sprint(value))
		}
	}
	c.app.warn("%s", clean(strings.Join(append([]string{text}, parts...), ": ")))
	return nil
}

// Sync does nothing: lines are written at once.
func (warnCore) Sync() error { return nil }
