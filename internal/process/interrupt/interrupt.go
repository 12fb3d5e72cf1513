// Package interrupt receives the signals that ask a process to end, or to read its configuration
// again.
package interrupt

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Gap is the time after a signal within which another one belongs to it. GNU timeout, terminals and
// some service managers send a signal to the process and to its group, or SIGHUP right behind
// SIGTERM, and mean one request.
const Gap = time.Second

// Notify is signal.Notify without the signals that were ignored when the process started: nohup,
// and shells that start a command in the background, ignore signals that the command must not get.
// Go can find that out only for SIGHUP and SIGINT.
func Notify(c chan<- os.Signal, signals ...os.Signal) {
	heard := make([]os.Signal, 0, len(signals))
	for _, s := range signals {
		if !signal.Ignored(s) {
			heard = append(heard, s)
		}
	}
	if len(heard) > 0 { // none would mean all
		signal.Notify(c, heard...)
	}
}

// SurvivePipes keeps the process alive when its standard output or standard error has no reader any
// more. Writes then return an error. Commands that the process starts get SIGPIPE as usual, which
// they would not after signal.Ignore.
func SurvivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// Counter decides which signals count. It is for one goroutine.
type Counter struct{ last time.Time }

// Counts reports whether a signal that has come now is a request of its own: the first one, or one
// that comes at least Gap after the last that counted.
func (c *Counter) Counts() bool {
	if !c.last.IsZero() && time.Since(c.last) < Gap {
		return false
	}
	c.last = time.Now()
	return true
}

// Steps calls one step for each signal that counts, and returns after the last step.
func Steps(signals <-chan os.Signal, steps ...func()) {
	var counter Counter
	for _, step := range steps {
		for <-signals; !counter.Counts(); {
			<-signals
		}
		step()
	}
}
