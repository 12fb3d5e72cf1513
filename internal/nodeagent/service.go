package nodeagent

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/worker"
)

// service runs the jobs of one service by an executor. After a change of the configuration that
// replaces it, it lives on until its jobs have ended.
type service struct {
	name    string
	made    ingredients
	http    *httpExecutor // exactly one of http and command is set
	command *commandExecutor

	mu      sync.Mutex // guards the fields that follow
	running int
	retired bool
}

// ingredients is everything in a configuration that an executor depends on.
type ingredients struct {
	HTTP           *HTTP
	Command        *Command
	MaxResultBytes int
	// Conns is the number of idle connections that an HTTP executor keeps.
	Conns int
}

func (c *Config) ingredients(i int) ingredients {
	s := &c.Services[i]
	in := ingredients{HTTP: s.HTTP, Command: s.Command, MaxResultBytes: c.MaxResultBytes}
	if s.HTTP != nil {
		in.Conns = c.Node.MaxConcurrency
	}
	return in
}

// newService makes the executor of services[i]. It runs jobs once its contain has succeeded.
func newService(c *Config, i int, log *zap.Logger) (*service, error) {
	s := &service{name: c.Services[i].Name, made: c.ingredients(i)}
	if s.made.HTTP != nil {
		s.http = newHTTP(*s.made.HTTP, s.made.MaxResultBytes, s.made.Conns, log)
		return s, nil
	}
	var err error
	if s.command, err = newCommand(*s.made.Command, s.made.MaxResultBytes, log); err != nil {
		return nil, fmt.Errorf("services[%d].command.argv %w", i, err)
	}
	return s, nil
}

// madeOf reports whether an executor made of in would be the same.
func (s *service) madeOf(in ingredients) bool { return reflect.DeepEqual(s.made, in) }

// contain prepares the limits of a command.
func (s *service) contain(limits *containment) error {
	if s.command == nil {
		return nil
	}
	return limits.contain(s.name, s.command)
}

// lacksLimits reports whether the limits of a command could not be set so far.
func (s *service) lacksLimits() bool {
	return s.command != nil && s.command.cfg.Limits != nil && s.command.groups.Load() == nil
}

// run is the handler.
func (s *service) run(ctx context.Context, job *worker.Job) (any, error) {
	s.change(+1, false)
	defer s.change(-1, false)
	if s.http != nil {
		return s.http.run(ctx, job)
	}
	return s.command.run(ctx, job)
}

// retire is called if no further jobs are expected. A job that was about to begin still runs.
func (s *service) retire() { s.change(0, true) }

// change records jobs that begin (+1) or end (-1), and the retirement. Once no job needs them any
// more, it closes idle connections.
func (s *service) change(jobs int, retire bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += jobs
	s.retired = s.retired || retire
	if s.http != nil && s.retired && s.running == 0 {
		s.http.close()
	}
}
