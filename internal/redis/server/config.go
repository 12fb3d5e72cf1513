package server

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// DefaultStopGrace is how long Stop waits after SIGTERM before it sends SIGKILL.
	DefaultStopGrace = 5 * time.Second
	// DefaultAppendFsync is Redis' own default: at most about a second of writes is lost at a power
	// loss.
	DefaultAppendFsync = "everysec"
)

// Config describes the server to start. The zero value is a server without persistence, on a free
// port, in a folder of its own that Stop removes.
type Config struct {
	// Binary is the command to run; a name without a slash is looked up in PATH. Empty means
	// redis-server, or valkey-server if only that one is installed.
	Binary string
	// Dir is the data folder; it is made when missing and never removed. Empty means a new
	// temporary folder, which Kill and Restart keep and Stop removes.
	Dir string
	// Port is the TCP port on 127.0.0.1. With 0 the first Start picks a free one, and later ones
	// keep it.
	Port int
	// AppendOnly keeps the data in an append-only file. Without it nothing is written to disk.
	AppendOnly bool
	// AppendFsync is always, everysec or no; empty means DefaultAppendFsync. It has no effect
	// without AppendOnly.
	AppendFsync string
	// ConfigFile is a file with settings of the server, which the fields here override. The server
	// may write to it, as a sentinel does (ExtraArgs "--sentinel"). Empty means none.
	ConfigFile string
	// ExtraArgs come last on the command line, so they win over everything above: "--hz", "100".
	// They must not change the port, the bind address or the folder.
	ExtraArgs []string
	// StopGrace is how long Stop waits after SIGTERM before it sends SIGKILL; 0 means
	// DefaultStopGrace.
	StopGrace time.Duration
	// Logger gets the server's output (debug) and its starts and stops (info); nil means no
	// logging.
	Logger *zap.Logger
}

// WithDefaults returns a copy in which zero fields have their defaults. Binary, Dir and Port stay
// empty: Start finds them.
func (c Config) WithDefaults() Config {
	c.AppendFsync = cmp.Or(c.AppendFsync, DefaultAppendFsync)
	c.StopGrace = cmp.Or(c.StopGrace, DefaultStopGrace)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	c.ExtraArgs = slices.Clone(c.ExtraArgs)
	return c
}

// Validate names every field that cannot be used.
func (c Config) Validate() error {
	var errs []error
	if c.Port < 0 || c.Port > 65535 {
		errs = append(errs, fmt.Errorf("port %d is not within 0 and 65535", c.Port))
	}
	if !slices.Contains([]string{"", "always", "everysec", "no"}, c.AppendFsync) {
		errs = append(errs, fmt.Errorf("appendfsync %q is not always, everysec or no", c.AppendFsync))
	}
	if c.StopGrace < 0 {
		errs = append(errs, fmt.Errorf("stop grace %s is negative", c.StopGrace))
	}
	return errors.Join(errs...)
}
