package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// commandsShown bounds the list of commands in a result.
const commandsShown = 6

// redisStat is a reading of Redis' own counters since its start.
type redisStat struct {
	cpuSeconds float64
	commands   map[string]commandStat
}

type commandStat struct{ calls, usec float64 }

func readRedisStat(ctx context.Context, client rueidis.Client) (redisStat, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := client.Do(ctx, client.B().Info().Section("cpu", "commandstats").Build()).ToString()
	if err != nil {
		return redisStat{}, fmt.Errorf("read INFO: %w", err)
	}
	return parseRedisStat(text)
}

// parseRedisStat reads lines such as
//
//	used_cpu_sys_main_thread:1.5
//	cmdstat_evalsha:calls=21,usec=175,usec_per_call=8.33,rejected_calls=0,failed_calls=0
func parseRedisStat(info string) (redisStat, error) {
	stat := redisStat{commands: make(map[string]commandStat)}
	for line := range strings.Lines(info) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		switch command, isCommand := strings.CutPrefix(name, "cmdstat_"); {
		case isCommand:
			c, err := parseCommandStat(value)
			if err != nil {
				return stat, fmt.Errorf("INFO line %q: %w", line, err)
			}
			stat.commands[command] = c
		case name == "used_cpu_user_main_thread", name == "used_cpu_sys_main_thread":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return stat, fmt.Errorf("INFO line %q: %w", line, err)
			}
			stat.cpuSeconds += seconds
		}
	}
	return stat, nil
}

func parseCommandStat(fields string) (commandStat, error) {
	var c commandStat
	for field := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(field, "=")
		var into *float64
		switch name {
		case "calls":
			into = &c.calls
		case "usec":
			into = &c.usec
		default:
			continue
		}
		figure, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return c, err
		}
		*into = figure
	}
	return c, nil
}

// cost is what Redis spent between two readings on each of jobs.
func (s redisStat) cost(before redisStat, jobs int64) redisCost {
	if jobs == 0 {
		return redisCost{}
	}
	n := float64(jobs)
	out := redisCost{CPUPerJob: rounded((s.cpuSeconds - before.cpuSeconds) * 1e6 / n)}
	for name, after := range s.commands {
		was := before.commands[name]
		c := commandCost{Command: name, CallsPerJob: hundredths((after.calls - was.calls) / n), TimePerJob: hundredths((after.usec - was.usec) / n)}
		if name == "evalsha" {
			out.ScriptPerJob = rounded((after.usec - was.usec) / n)
		}
		if c.TimePerJob > 0 {
			out.Commands = append(out.Commands, c)
		}
	}
	slices.SortFunc(out.Commands, func(a, b commandCost) int {
		return cmp.Or(cmp.Compare(b.TimePerJob, a.TimePerJob), cmp.Compare(a.Command, b.Command))
	})
	out.Commands = out.Commands[:min(len(out.Commands), commandsShown)]
	return out
}

func hundredths(f float64) float64 { return float64(int64(f*100+0.5)) / 100 }

// redisVersion names the server as its INFO does.
func redisVersion(ctx context.Context, client rueidis.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return "", fmt.Errorf("read INFO: %w", err)
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	if v := fields["valkey_version"]; v != "" {
		return "Valkey " + v, nil
	}
	return "Redis " + fields["redis_version"], nil
}
