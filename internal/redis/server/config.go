package server

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

const (
	// DefaultStopGrace is how long Stop waits after SIGTERM before it sends SIGKILL.
	DefaultStopGrace = 5 * time.Second
	// DefaultAppendFsync is Redis' own default: at most about a second of writes is lost at a power loss.
	DefaultAppendFsync = "everysec"
)

// Config says which server to start. The zero value is a server without persistence, on a free port, in
// a folder of its own that goes away with Stop.
type Config struct {
	// Binary is the command to run; a name without a slash is looked up in PATH. Empty: redis-server,
	// or valkey-server where only that one is installed.
	Binary string
	// Dir is the data folder; it is made when missing and never removed. Empty: a new temporary folder,
	// kept over Kill and Restart, removed by Stop.
	Dir string
	// Port is the TCP port on 127.0.0.1. 0: the first Start picks a free one, later ones keep it.
	Port int
	// AppendOnly keeps the data in an append-only file. Without it nothing is written to disk.
	AppendOnly bool
	// AppendFsync is always, everysec or no; empty means DefaultAppendFsync. It says nothing without AppendOnly.
	AppendFsync string
	// ConfigFile is a file of the server's own settings, which the fields here override; the server may write to
	// it, as a sentinel does (ExtraArgs "--sentinel"). Empty: none.
	ConfigFile string
	// ExtraArgs come last on the command line, so they win over everything above: "--hz", "100".
	// They must not change the port, the bind address or the folder.
	ExtraArgs []string
	// StopGrace is how long Stop waits after SIGTERM before it sends SIGKILL; 0 means DefaultStopGrace.
	StopGrace time.Duration
	// Logger gets the server's output (debug) and its starts and stops (info); nil means no logging.
	Logger *zap.Logger
}

// WithDefaults returns a copy in which zero fields have their defaults. Binary, Dir and Port stay empty:
// they are found out at Start.
func (c Config) WithDefaults() Config {
	if c.AppendFsync == "" {
		c.AppendFsync = DefaultAppendFsync
	}
	if c.StopGrace == 0 {
		c.StopGrace = DefaultStopGrace
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	c.ExtraArgs = append([]string(nil), c.ExtraArgs...)
	return c
}

// Validate names every field that cannot be used.
func (c Config) Validate() error {
	var errs []error
	if c.Port < 0 || c.Port > 65535 {
		errs = append(errs, fmt.Errorf("port %d is not within 0 and 65535", c.Port))
	}
	switch c.AppendFsync {
	case "", "always", "everysec", "no":
	default:
		errs = append(errs, fmt.Errorf("appendfsync %q is not always, everysec or no", c.AppendFsync))
	}
	if c.StopGrace < 0 {
		errs = append(errs, fmt.Errorf("stop grace %s is negative", c.StopGrace))
	}
	return errors.Join(errs...)
}
