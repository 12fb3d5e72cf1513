package measure

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// CallTimeout bounds one call of a tool to Redis.
const CallTimeout = 5 * time.Second

// RedisStat is a reading of Redis' own counters since its start.
type RedisStat struct {
	// CPUSeconds are the main thread's, user and system.
	CPUSeconds float64
	// SentBytes is what it has written to all connections.
	SentBytes float64
	// Commands are by name as INFO has it, such as evalsha.
	Commands map[string]CommandStat
}

// CommandStat is one command's part.
type CommandStat struct{ Calls, Usec float64 }

// RedisCost is what Redis spent on one counted job, in microseconds.
type RedisCost struct {
	// CPUPerJob is the main thread's user and system time, ScriptPerJob the time inside EVALSHA,
	// with the commands that scripts call, and ReadPerJob the time in reads of streams, which
	// scripts call nowhere.
	CPUPerJob, ScriptPerJob, ReadPerJob float64
}

// ReadRedisStat asks the server.
func ReadRedisStat(ctx context.Context, client rueidis.Client) (RedisStat, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	text, err := client.Do(ctx, client.B().Info().Section("cpu", "stats", "commandstats").Build()).ToString()
	if err != nil {
		return RedisStat{}, fmt.Errorf("read INFO: %w", err)
	}
	return parseRedisStat(text)
}

// parseRedisStat reads lines such as
//
//	used_cpu_sys_main_thread:1.5
//	cmdstat_evalsha:calls=21,usec=175,usec_per_call=8.33,rejected_calls=0,failed_calls=0
func parseRedisStat(info string) (RedisStat, error) {
	stat := RedisStat{Commands: make(map[string]CommandStat)}
	counters := map[string]*float64{
		"used_cpu_user_main_thread": &stat.CPUSeconds, "used_cpu_sys_main_thread": &stat.CPUSeconds,
		"total_net_output_bytes": &stat.SentBytes,
	}
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
			stat.Commands[command] = c
		case counters[name] != nil:
			figure, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return stat, fmt.Errorf("INFO line %q: %w", line, err)
			}
			*counters[name] += figure
		}
	}
	return stat, nil
}

func parseCommandStat(fields string) (CommandStat, error) {
	var c CommandStat
	for field := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(field, "=")
		var into *float64
		switch name {
		case "calls":
			into = &c.Calls
		case "usec":
			into = &c.Usec
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

// Cost is what Redis spent between two readings on each of jobs.
func (s RedisStat) Cost(before RedisStat, jobs int64) RedisCost {
	if jobs == 0 {
		return RedisCost{}
	}
	per := func(us float64) float64 { return FourFigures(us / float64(jobs)) }
	usec := func(command string) float64 { return s.Commands[command].Usec - before.Commands[command].Usec }
	return RedisCost{CPUPerJob: per((s.CPUSeconds - before.CPUSeconds) * 1e6), ScriptPerJob: per(usec("evalsha")), ReadPerJob: per(usec("xread"))}
}

// Rate is how often a second a command was called since before, by scripts too.
func (s RedisStat) Rate(before RedisStat, command string, seconds float64) float64 {
	return (s.Commands[command].Calls - before.Commands[command].Calls) / seconds
}

// RedisVersion names the server as its INFO does.
func RedisVersion(ctx context.Context, client rueidis.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
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
