package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Summary returns what Redis knows of a service, even if that has no instance.
func (s *Store) Summary(ctx context.Context, service string) (Summary, error) {
	found, err := s.Summaries(ctx, []string{service})
	if err != nil {
		return Summary{}, err
	}
	return found[0], nil
}

// Summaries returns what Redis knows of services, in their order, by one call for 256 with the same
// tag.
func (s *Store) Summaries(ctx context.Context, services []string) ([]Summary, error) {
	byRunner := make(map[*script.Runner][]int)
	for i, service := range services {
		if err := freeslot.ValidateName("service", service); err != nil {
			return nil, err
		}
		runner, _ := s.c.of(service)
		byRunner[runner] = append(byRunner[runner], i)
	}
	out := make([]Summary, len(services))
	for runner, all := range byRunner {
		for some := range slices.Chunk(all, lookServices) {
			if err := s.summarize(ctx, runner, services, some, out); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// summarize runs summary.lua for the services at some, and fills in their places in out.
func (s *Store) summarize(
	ctx context.Context, runner *script.Runner, services []string, some []int, out []Summary,
) error {
	keys := make([]string, 0, 2*len(some))
	for _, i := range some {
		_, k := s.c.of(services[i])
		keys = append(keys, k.record(services[i]), k.heartbeats(services[i]))
	}
	values, err := runner.Call(ctx, scripts["summary"], keys, []string{milliseconds(DefaultLimit)}).ToArray()
	if err == nil && len(values) != len(some) {
		err = fmt.Errorf("%d answers for %d services", len(values), len(some))
	}
	for n := 0; err == nil && n < len(some); n++ {
		out[some[n]], err = readSummary(services[some[n]], values[n])
	}
	if err != nil {
		return fmt.Errorf("summary of services: %w", err)
	}
	return nil
}

func readSummary(service string, value rueidis.RedisMessage) (Summary, error) {
	parts, err := value.ToArray()
	if err == nil && len(parts) != 5 {
		err = fmt.Errorf("%d parts, expected 5", len(parts))
	}
	if err != nil {
		return Summary{}, err
	}
	head, err := readHead(parts[0])
	r := script.Reply{Values: parts[1:]}
	limit, every := msDuration(r.Text()), msDuration(r.Text())
	out := Summary{
		Service: service, Late: r.Number(), Instances: r.Number(), Revision: head.Revision, Why: head.Why, Guard: head.Guard,
	}
	out.Limit = max(cmp.Or(limit, DefaultLimit), 3*head.Longest) // as in cleanup.lua
	out.Every = min(cmp.Or(every, DefaultCleanupEvery), out.Limit/4)
	if head.Revision == 0 {
		out.Why = WhyNeverRegistered
	}
	return out, errors.Join(err, r.Err)
}
