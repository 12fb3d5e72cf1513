package cell

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/redistest"
)

func BenchmarkZZ(b *testing.B) {
	m := newMeter(b, redistest.New(b))
	keys := func(n int) func(string) []string {
		return func(node string) []string {
			out := []string{}
			for i := range n {
				out = append(out, "p:k"+strconv.Itoa(i)+":"+node)
			}
			return out
		}
	}
	args := func(n int) []string {
		a := []string{"node-1", "01JD5Y8G6W9V0M5T2C3Q4R7X8Z", "online", `{"cpu":{"percent":12.5},"memory":{"used_bytes":123456789,"total_bytes":987654321},"load":[0.5,0.4,0.3]}`, "30000", "scheduler:events:node_update", "1700000000123-0"}
		for len(a) < n {
			a = append(a, "field-"+strconv.Itoa(len(a)))
		}
		return a[:n]
	}
	type kind struct {
		name, text string
		k          func(string) []string
		a          []string
	}
	kinds := []kind{
		{"reserve", reserveScript, keys(3), []string{"1", "job-3", strings.Repeat("x", 256)}},
		{"base5k", `return 1`, keys(5), args(6)},
		{"base6k", `return 1`, keys(6), args(6)},
		{"zaddnum", `redis.call('ZADD', 'zz', 1700000000123 + ARGV[7], KEYS[1]) return 1`, keys(6), append(args(6), "RAND")},
		{"zaddstr", `redis.call('ZADD', 'zz2', ARGV[7], KEYS[1]) return 1`, keys(6), append(args(6), "RAND")},
		{"zaddsame", `redis.call('ZADD', 'zz3', ARGV[5], KEYS[1]) return 1`, keys(6), append(args(6), "RAND")},
		{"set", `redis.call('SET', KEYS[3], ARGV[4]) return 1`, keys(6), args(6)},
		{"setcat", `redis.call('SET', KEYS[3], ARGV[5] .. ' ' .. ARGV[4]) return 1`, keys(6), args(6)},
		{"setpx", `redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[5]) return 1`, keys(6), args(6)},
		{"psetex", `redis.call('PSETEX', KEYS[3], ARGV[5], ARGV[4]) return 1`, keys(6), args(6)},
		{"hset1", `redis.call('HSET', KEYS[3], 'r', ARGV[4]) return 1`, keys(6), args(6)},
		{"hset2s", `redis.call('HSET', KEYS[3], 'r', ARGV[4], 'h', ARGV[5]) return 1`, keys(6), args(6)},
		{"hset3s", `redis.call('HSET', KEYS[3], 'r', ARGV[4], 'h', ARGV[5], 'v', ARGV[5]) return 1`, keys(6), args(6)},
		{"time", `local t = redis.call('TIME') return 1`, keys(6), args(6)},
		{"timestr", `local t = redis.call('TIME') local now = math.floor((t[1] * 1000000 + t[2]) / 1000) local at = now .. '' return 1`, keys(6), args(6)},
		{"timestr2", `local t = redis.call('TIME') local at = t[1] .. string.sub(t[2] + 1000000, 2, 4) return 1`, keys(6), args(6)},
		{"hincr4", `redis.call('HINCRBY', 'v4', 'revision', 1) return 1`, keys(6), args(6)},
		{"incr", `redis.call('INCR', 'cc') return 1`, keys(6), args(6)},
		{"hmgetprofile", `redis.call('HMGET', 'profile', 'epoch', 'status', 'max_concurrency') return 1`, keys(6), args(6)},
		{"hmgetprofile2", `redis.call('HMGET', 'profile2', 'epoch', 'status', 'max_concurrency') return 1`, keys(6), args(6)},
		{"hmgetprofile3", `redis.call('HMGET', 'profile3', 'epoch', 'status', 'max_concurrency') return 1`, keys(6), args(6)},
		{"hgetall", `redis.call('HGETALL', KEYS[5]) return 1`, keys(6), args(6)},
		{"hgetall1", `redis.call('HGETALL', 'slots') return 1`, keys(6), args(6)},
		{"publish", `redis.call('PUBLISH', ARGV[6], ARGV[4]) return 1`, keys(6), args(6)},
		{"concat", `local x = '1 h ' .. ARGV[5] .. ' 1700000000123 ' .. ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3] .. ' 8 0 ' .. ARGV[4] return 1`, keys(6), args(6)},
		{"reply3", `return {1, 1234, 0}`, keys(6), args(6)},
		{"reply2", `return {1234, 0}`, keys(6), args(6)},
		{"replys", `return '1234 0'`, keys(6), args(6)},
	}
	m.must(m.raw.Do(m.ctx, m.raw.B().Arbitrary("HSET", "v4", "generation", "0123456789abcdef", "revision", "5", "tombstones", "4", "floor", "3").Build()).Error())
	m.must(m.raw.Do(m.ctx, m.raw.B().Arbitrary("HSET", "slots", "sum", "0").Build()).Error())
	m.must(m.raw.Do(m.ctx, m.raw.B().Arbitrary("HSET", "profile", "registered_at_ms", "1700000000123", "epoch", "01JD5Y8G6W9V0M5T2C3Q4R7X8Z", "status", "online", "version", "12345", "node_id", "node-1234", "health", "Online", "max_concurrency", "8", "capabilities", `{"asr":["de"]}`, "x", "y").Build()).Error())
	m.must(m.raw.Do(m.ctx, m.raw.B().Arbitrary("HSET", "profile2", "epoch", "01JD5Y8G6W9V0M5T2C3Q4R7X8Z", "status", "online", "max_concurrency", "8", "registered_at_ms", "1700000000123", "version", "12345", "node_id", "node-1234", "health", "Online", "capabilities", `{"asr":["de"]}`, "x", "y").Build()).Error())
	m.must(m.raw.Do(m.ctx, m.raw.B().Arbitrary("HSET", "profile3", "epoch", "01JD5Y8G6W9V0M5T2C3Q4R7X8Z", "status", "online", "max_concurrency", "8", "registered_at_ms", "1700000000123", "version", "12345", "node_id", "node-1234", "health", "Online", "capabilities", strings.Repeat("z", 100), "x", "y").Build()).Error())
	us := make([]float64, len(kinds))
	scripts := make([]*rueidis.Lua, len(kinds))
	for i, k := range kinds {
		scripts[i] = rueidis.NewLuaScript(k.text)
	}
	b.StopTimer()
	b.ResetTimer()
	for range b.N {
		for i, k := range kinds {
			m.us = 0
			m.measured(func() {
				for range 200 {
					a := append([]string(nil), k.a...)
					if a[len(a)-1] == "RAND" {
						a[len(a)-1] = strconv.Itoa(1700000000000 + rand.IntN(1000000))
					}
					m.must(scripts[i].Exec(m.ctx, m.raw, k.k(k.name+strconv.Itoa(rand.IntN(1000))), a).Error())
				}
			})
			us[i] += m.us
		}
	}
	for i, k := range kinds {
		b.ReportMetric(us[i]/float64(b.N*200), k.name+"-us")
	}
}
