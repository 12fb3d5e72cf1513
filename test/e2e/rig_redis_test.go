package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// keys are all keys of this test's system.
func (s *system) keys(client rueidis.Client) []string {
	s.t.Helper()
	ctx := waittest.Context(s.t)
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
	ctx := waittest.Context(s.t)
	for _, key := range s.keys(client) {
		if !strings.HasPrefix(key, s.prefix+":slots:") {
			continue
		}
		slots, err := client.Do(ctx, client.B().Hgetall().Key(key).Build()).AsStrMap()
		if err != nil {
			s.t.Fatal(err)
		}
		if sum := slots["sum"]; len(slots) > 1 || strings.Trim(sum, "0") != "" {
			s.t.Errorf("%s still has %v", key, slots)
		}
	}
}

// blocked is nil when the client of this name waits inside a blocking read.
func (s *system) blocked(name string) error {
	client := s.redis.Client(s.t)
	defer client.Close()
	ctx := waittest.Context(s.t)
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
	ctx := waittest.Context(s.t)
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

// awaitBeat waits for a node's first heartbeat.
func (s *system) awaitBeat(node string) {
	s.t.Helper()
	ctx, client, key := waittest.Context(s.t), s.redis.Client(s.t), s.prefix+":load:"+node
	waittest.Until(s.t, "a heartbeat of "+node, func() bool {
		n, err := client.Do(ctx, client.B().Exists().Key(key).Build()).AsInt64()
		return err == nil && n == 1
	})
}

// fallSilent makes the last heartbeat of a node, whose agent has ended, so much older.
func (s *system) fallSilent(node string, by time.Duration) {
	s.t.Helper()
	ctx, client, key := waittest.Context(s.t), s.redis.Client(s.t), s.prefix+":load:"+node
	text, err := client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
	if err != nil {
		s.t.Fatal(err)
	}
	var beat int64
	if _, err := fmt.Sscanf(text, "%13d", &beat); err != nil {
		s.t.Fatalf("%s was last heard at %q: %v", node, text, err)
	}
	older := fmt.Sprintf("%013d", beat-by.Milliseconds())
	if err := client.Do(ctx, client.B().Setrange().Key(key).Offset(0).Value(older).Build()).Error(); err != nil {
		s.t.Fatal(err)
	}
}
