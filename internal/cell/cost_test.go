package cell

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// reserve is the yardstick: a script of five commands that any scheduler on Redis needs.
const reserveScript = `
local profile = redis.call('HMGET', KEYS[1], 'status', 'max_concurrency', 'epoch')
local used = redis.call('ZCARD', KEYS[2])
redis.call('ZADD', KEYS[2], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', '128', '*', 'd', ARGV[3])
return redis.call('HINCRBY', KEYS[1], 'version', 1)`

// BenchmarkScriptCost reports the time that Redis itself takes for a call of the
// scripts that a fleet runs all the time, by its own accounts, beside the yardstick
// in the same run. Calls are spread over many nodes, in turns of the kinds.
func BenchmarkScriptCost(b *testing.B) {
	const nodes = 1000
	m := newMeter(b, redistest.New(b))
	all := make([]freeslot.Node, nodes)
	epochs := make([]Epoch, nodes)
	position := make([]string, nodes)
	for i := range all {
		all[i], epochs[i] = richNode("node-"+strconv.Itoa(i)), NewEpoch()
		_, err := m.c.Register(m.ctx, all[i], epochs[i])
		m.must(err)
		position[i] = fmt.Sprintf("%d-0", i+1)
	}
	linked := make([]LinkedHeartbeat, nodes/2)
	for i := range linked {
		linked[i] = LinkedHeartbeat{Heartbeat{Node: "linked-" + strconv.Itoa(i), Epoch: NewEpoch()}, testLink(1, "t")}
		_, err := m.c.RegisterLinked(m.ctx, richNode(linked[i].Node), linked[i].Epoch, linked[i].Link, "")
		m.must(err)
	}
	resources := []byte(`{"cpu":{"percent":12.5},"memory":{"used_bytes":123456789,"total_bytes":987654321},"load":[0.5,0.4,0.3]}`)
	serial := 0
	beat := func(i int, change func(*Heartbeat)) {
		hb := Heartbeat{Node: all[i].ID, Epoch: epochs[i]}
		change(&hb)
		_, err := m.c.Heartbeat(m.ctx, hb)
		m.must(err)
	}
	busy := make([][]Attempt, nodes)
	for i := 0; i < nodes; i += 2 {
		for range 2 {
			s := submission("r1", all[i].ID)
			e, err := encodeSubmission(s, 1)
			m.must(err)
			_, err = m.c.submit(m.ctx, []encodedSubmission{e})
			m.must(err)
			busy[i] = append(busy[i], Attempt{s.JobID, 1})
		}
	}
	kinds := []cost{
		m.reserved(),
		{"heartbeat", func(i int) { beat(i|1, func(*Heartbeat) {}) }},
		{"heartbeat-resources", func(i int) { beat(i|1, func(hb *Heartbeat) { hb.Resources = resources }) }},
		{"heartbeat-read", func(i int) { beat(i|1, func(hb *Heartbeat) { hb.Read = position[i|1] }) }},
		{"heartbeat-2-jobs", func(i int) { beat(i&^1, func(hb *Heartbeat) { hb.Running = busy[i&^1] }) }},
		{"heartbeat-linked", func(i int) {
			of := linked[i%len(linked)]
			_, err := m.c.HeartbeatLinked(m.ctx, of.Heartbeat, of.Link)
			m.must(err)
		}},
		{"heartbeats-32", func(i int) {
			beats := make([]LinkedHeartbeat, maxHeartbeats)
			for n := range beats {
				beats[n] = linked[(i+n)%len(linked)]
			}
			_, err := m.c.heartbeats(m.ctx, beats, m.c.runner.CallApart)
			m.must(err)
		}},
		// Of its commands, two are for the mark.
		{"heartbeat-quiet", func(i int) {
			mark := func(command ...string) { m.must(m.raw.Do(m.ctx, m.raw.B().Arbitrary(command...).Build()).Error()) }
			mark("HSET", m.c.Layout().Version(), "quiet_until", "9999999999999")
			beat(i|1, func(*Heartbeat) {})
			mark("HDEL", m.c.Layout().Version(), "quiet_until")
		}},
		{"register-new", func(int) {
			serial++
			_, err := m.c.Register(m.ctx, richNode("new-"+strconv.Itoa(serial)), NewEpoch())
			m.must(err)
		}},
		{"register-epoch", func(i int) {
			epochs[i|1] = NewEpoch()
			_, err := m.c.Register(m.ctx, all[i|1], epochs[i|1])
			m.must(err)
		}},
		{"register-changed", func(i int) {
			all[i|1].MaxConcurrency = 3 + all[i|1].MaxConcurrency%4
			_, err := m.c.Register(m.ctx, all[i|1], epochs[i|1])
			m.must(err)
		}},
		{"register-same", func(i int) {
			_, err := m.c.Register(m.ctx, all[i], epochs[i])
			m.must(err)
		}},
	}
	for i := range nodes { // streams that exist, as they do in the long run
		kinds[0].call(i)
	}
	m.inTurns(nodes, kinds)
}

// cost is one kind of call, of the node with this number.
type cost struct {
	name string
	call func(i int)
}

// inTurns reports what each kind costs Redis, beside the first. Each kind's share of a round is
// one figure, and the median of the rounds counts: a round during which the machine did something else
// spoils nothing.
func (m *meter) inTurns(nodes int, kinds []cost) {
	const turn = 100
	us, calls := make([][]float64, len(kinds)), make([]float64, len(kinds))
	m.b.StopTimer()
	m.b.ResetTimer()
	for range m.b.N {
		for k, kind := range kinds {
			m.us, m.calls = 0, 0
			m.measured(func() {
				for range turn {
					kind.call(rand.IntN(nodes))
				}
			})
			us[k] = append(us[k], m.us/turn)
			calls[k] = m.calls / turn
		}
		m.must(m.c.KeepReplies(m.ctx, "r1", fmt.Sprintf("%d-0", uint64(1)<<62)))
	}
	yardstick := median(us[0])
	for k, kind := range kinds {
		m.b.ReportMetric(median(us[k]), kind.name+"-us")
		m.b.ReportMetric(calls[k], kind.name+"-calls")
		m.b.ReportMetric(median(us[k])/yardstick, kind.name+"-ratio")
	}
}

// reserved is the yardstick, run for a node.
func (m *meter) reserved() cost {
	reserve, serial, prefix := rueidis.NewLuaScript(reserveScript), 0, m.c.Layout().Prefix
	payload := strings.Repeat("x", 256)
	return cost{"reserve", func(i int) {
		serial++
		id := strconv.Itoa(i)
		keys := []string{prefix + ":reserve:" + id, prefix + ":held:" + id, prefix + ":stream:" + id}
		m.must(reserve.Exec(m.ctx, m.raw, keys, []string{strconv.Itoa(serial), "job-" + strconv.Itoa(serial%16), payload}).Error())
	}}
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
