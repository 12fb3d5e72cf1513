package logging

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// WithHints returns a logger that adds hint(err) to each entry with an error, unless the hint is
// "". Several goroutines call hint at once.
func WithHints(log *zap.Logger, hint func(error) string) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return &hinting{core, hint} }))
}

// hinting wraps cores that decide by the level alone whether they write an entry.
type hinting struct {
	zapcore.Core
	hint func(error) string
}

func (h *hinting) With(fields []zap.Field) zapcore.Core { return &hinting{h.Core.With(fields), h.hint} }

func (h *hinting) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if h.Enabled(entry.Level) {
		return checked.AddCore(entry, h)
	}
	return checked
}

func (h *hinting) Write(entry zapcore.Entry, fields []zap.Field) error {
	for _, f := range fields {
		err, ok := f.Interface.(error)
		if f.Type != zapcore.ErrorType || !ok {
			continue
		}
		if hint := h.hint(err); hint != "" {
			return h.Core.Write(entry, append(fields[:len(fields):len(fields)], zap.String("hint", hint)))
		}
	}
	return h.Core.Write(entry, fields)
}
