package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
)

type graphCmd struct{}

// Run prints how a replica is put together. It connects to nothing.
func (graphCmd) Run(env *environment) error {
	graph, err := replica.New(config.DefaultReplica(), zap.NewNop(), prometheus.NewRegistry()).Graph()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.out, graph)
	return err
}
