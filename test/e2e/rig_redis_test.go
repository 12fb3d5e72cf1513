package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const redisLimit = 5 * time.Second

// keys are all keys of this test's system.
func (s *system) keys(client rueidis.Client) []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), redisLimit)
	defer cancel()
	var keys []string
	for cursor := uint64(0); ; {
		page, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(s.prefix+":*").Count(1000).Build()).AsScanEntry()
		if err != nil {
			s.t.Fatal(err)
		}
		keys = append(keys, page.Elements...)
		if cursor = page.Cursor; cursor == 0 {
			return keys
		}
	}
}

// checkNoSlotsInUse looks at the truth in Redis: no node owns a job.
func (s *system) checkNoSlotsInUse() {
	s.t.Helper()
	for _, redis := range s.targets() {
		for _, client := range redis.Client(s.t).Nodes() {
			s.checkNoSlots(client)
		}
	}
}

func (s *system) checkNoSlots(client rueidis.Client) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), redisLimit)
	defer cancel()
	for _, key := range s.keys(client) {
		if !strings.HasPrefix(key, s.prefix+":slots:") {
			continue
		}
		slots, err := client.Do(ctx, client.B().Hgetall().Key(key).Build()).AsStrMap()
		if err != nil {
			s.t.Fatal(err)
		}
		if sum := slots["sum"]; len(slots) > 1 || sum != "" && sum != "0" {
			s.t.Errorf("%s still has %v", key, slots)
		}
	}
}

// blocked is nil when the client of this name waits inside a blocking read.
func (s *system) blocked(name string) error {
	client := s.redis.Client(s.t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), redisLimit)
	defer cancel()
	list, err := client.Do(ctx, client.B().ClientList().Build()).ToString()
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		if strings.Contains(line, " name="+name+" ") && strings.Contains(line, " flags=b ") {
			return nil
		}
	}
	return fmt.Errorf("no client %s waits in a blocking read:\n%s", name, list)
}

// mentions lists the keys that belong to a node, and the sets and sorted sets that have it as a
// member.
func (s *system) mentions(node string) []string {
	s.t.Helper()
	client := s.redis.Client(s.t)
	ctx, cancel := context.WithTimeout(s.t.Context(), redisLimit)
	defer cancel()
	var found []string
	for _, key := range s.keys(client) {
		if strings.HasSuffix(key, ":"+node) {
			found = append(found, key)
			continue
		}
		kind, err := client.Do(ctx, client.B().Type().Key(key).Build()).ToString()
		if err != nil {
			s.t.Fatal(err)
		}
		member := false
		switch kind {
		case "set":
			member, err = client.Do(ctx, client.B().Sismember().Key(key).Member(node).Build()).AsBool()
		case "zset":
			err = client.Do(ctx, client.B().Zscore().Key(key).Member(node).Build()).Error()
			member = err == nil
		}
		if err != nil && !rueidis.IsRedisNil(err) {
			s.t.Fatal(err)
		}
		if member {
			found = append(found, key+" has it as a member")
		}
	}
	return found
}

// silent is nil when Redis has not heard of the node for longer than limit, by its own clock.
func (s *system) silent(node string, limit time.Duration) error {
	client := s.redis.Client(s.t)
	ctx, cancel := context.WithTimeout(s.t.Context(), redisLimit)
	defer cancel()
	clock, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
	if err != nil {
		return err
	}
	// Until the first heartbeat there is the registration alone.
	text, err := client.Do(ctx, client.B().Get().Key(s.prefix+":load:"+node).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		text, err = client.Do(ctx, client.B().Hget().Key(s.prefix+":nodes:"+node).Field("registered_at_ms").Build()).ToString()
	}
	if err != nil {
		return err
	}
	var beat int64
	if _, err := fmt.Sscanf(text, "%13d", &beat); err != nil {
		return fmt.Errorf("%s was last heard at %q: %w", node, text, err)
	}
	if age := time.Duration(clock[0])*time.Second - time.Duration(beat)*time.Millisecond; age <= limit {
		return fmt.Errorf("%s was heard %s ago, expected more than %s", node, age, limit)
	}
	return nil
}
