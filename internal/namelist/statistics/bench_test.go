package statistics

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const benchClients = 1000

// BenchmarkStatistics is the processor time of this process and of Redis. clients=reports are 1,000
// reports on one list, with counts and without; clients=add adds them up, which is due each 30 s.
func BenchmarkStatistics(b *testing.B) {
	redis := redistest.Shared(b)
	client, ctx := redis.Client(b), context.Background()
	control := namelist.NewControl(client, redis.Prefix(b), false, zap.NewNop(), nil)
	h, err := control.Create(ctx, "vip", namelist.Spec{})
	if err != nil {
		b.Fatal(err)
	}
	n := uint64(0)
	report := func(counted bool) {
		n += 5000
		for i := range benchClients {
			r := namelist.ClientReport{Birth: h.Birth, Revision: 1, Serves: 1, Loaded: []int64{1}, SDK: "go"}
			if counted {
				c := count.Report{Incarnation: fmt.Sprint("i", i), AgeMS: 1000}
				for cell := count.FilterNo; cell <= count.EditsNo; cell++ {
					c.Counts[cell] = n * uint64(cell)
				}
				c.Counts[count.FalsePositives], c.Counts[count.RemoteMicros], c.Counts[count.RemoteTo1ms] = n/100, n, n/3
				r.Counts = c.String()
			}
			if _, err := control.Relay(ctx, owner, fmt.Sprint("c", i), map[string]namelist.ClientReport{"vip": r}); err != nil {
				b.Fatal(err)
			}
		}
	}
	k := New(control, zap.NewNop(), nil)
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"reports=plain", func() { report(false) }},
		{"reports=counted", func() { report(true) }},
		{"add", func() {
			if err := k.Add(ctx, "vip"); err != nil {
				b.Fatal(err)
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var own, server time.Duration
			for range b.N {
				if c.name == "add" {
					report(true)
				}
				o, s := ownTime(b), serverTime(b, client)
				c.do()
				own, server = own+ownTime(b)-o, server+serverTime(b, client)-s
			}
			b.ReportMetric(float64(own.Microseconds())/float64(b.N), "us-own/op")
			b.ReportMetric(float64(server.Microseconds())/float64(b.N), "us-redis/op")
		})
	}
}

func ownTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func serverTime(b *testing.B, client rueidis.Client) (total time.Duration) {
	b.Helper()
	text, err := client.Do(context.Background(), client.B().Info().Section("cpu").Build()).ToString()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total
}
