package agent

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/worker"
)

// service runs the jobs of one service by an executor. It outlives a change of the
// configuration that replaces it for as long as it has jobs.
type service struct {
	name    string
	made    ingredients
	http    *httpExecutor // exactly one of http and command is set
	command *commandExecutor

	mu      sync.Mutex // guards what follows
	running int
	retired bool
}

// ingredients are all of a configuration that an executor is made of.
type ingredients struct {
	HTTP           *HTTP
	Command        *Command
	MaxResultBytes int
	// Conns is how many idle connections an HTTP executor keeps.
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

// madeOf reports whether an executor of these would be the same.
func (s *service) madeOf(in ingredients) bool { return reflect.DeepEqual(s.made, in) }

// contain sets what the limits of a command need.
func (s *service) contain(limits *containment) error {
	if s.command == nil {
		return nil
	}
	return limits.contain(s.name, s.command)
}

// lacksLimits reports whether the limits of a command could not be had so far.
func (s *service) lacksLimits() bool {
	return s.command != nil && s.command.cfg.Limits != nil && s.command.groups.Load() == nil
}

// run is the handler.
func (s *service) run(ctx context.Context, job *worker.Job) (any, error) {
	s.begin()
	defer s.end()
	if s.http != nil {
		return s.http.run(ctx, job)
	}
	return s.command.run(ctx, job)
}

func (s *service) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
}

func (s *service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.letGo()
}

// retire says that no further jobs will come. One that does all the same, because it was
// about to begin, still runs.
func (s *service) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.letGo()
}

// letGo closes idle connections when nobody needs them any more. mu is held.
func (s *service) letGo() {
	if s.http != nil && s.retired && s.running == 0 {
		s.http.close()
	}
}
