package cell

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/redistest"
)

func ask(m rueidis.RedisMessage) ([]rueidis.RedisMessage, error) { return m.ToArray() }

func TestZZMeasure(t *testing.T) {
	server := redistest.New(t)
	r := newRig(t, server.Target)
	r.waits("")
	r.cancelWaiting()
	eval := func(script string, args ...string) {
		t.Helper()
		if err := r.raw.Do(r.ctx(), r.raw.B().Eval().Script(script).Numkeys(0).Arg(args...).Build()).Error(); err != nil && err.Error() != "redis nil message" {
			t.Fatal(err)
		}
	}
	// 64 gates, 64 running holders each, 1500 parked each.
	fill := `local P, limit = ARGV[1], ARGV[2]
local cls, def = ARGV[3], ARGV[4]
for g = 1, 64 do
  local name = 'r:ten' .. g
  redis.call('HSET', P .. ':gates', name, limit)
  redis.call('ZADD', P .. ':parked', 1, name)
  for i = 1, 64 do
    local job = string.format('0-R%025d', g * 10000 + i)
    redis.call('SADD', P .. ':gate:' .. name, job)
    redis.call('HSET', P .. ':jobs:' .. job, 'state', 'running')
  end
  for i = 1, 1500 do
    local job = string.format('0-P%025d', g * 10000 + i)
    redis.call('HSET', P .. ':jobs:' .. job, 'state', 'waiting', 'gates', '1 ' .. name .. ' 64', 'reply_to', 'r1', 'job', 'ten' .. g .. ' 1 1000 60000 ' .. cls .. ' 5 3 0 ' .. def)
    redis.call('ZADD', P .. ':parked:' .. name, i, cls .. ' ' .. job)
  end
end`
	cls := ClassOf(testJob())
	eval(fill, r.l.Prefix, "64", cls.ID, cls.Definition)
	r.do("CONFIG", "SET", "slowlog-log-slower-than", "0")
	run := func(what string) {
		for i := range 3 {
			r.do("SLOWLOG", "RESET")
			begin := time.Now()
			n := r.check()
			took := time.Since(begin)
			slow, _ := ask(r.do("SLOWLOG", "GET", "1"))
			entry, _ := slow[0].ToArray()
			us, _ := entry[2].AsInt64()
			fmt.Println(what, i, "classes", n, "took", took, "redis us", us, "line", len(r.line(cls.ID)))
		}
	}
	run("closed")
	for g := 1; g <= 64; g++ {
		r.do("HSET", r.l.Gates(), "r:ten"+strconv.Itoa(g), "100000")
	}
	run("open")
}
