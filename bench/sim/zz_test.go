package sim

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/freeslot/freeslot/bench/trace"
)

func TestSmoke(t *testing.T) {
	reqs, err := trace.OpenRequests("/work/shared/data/azure_llm_2023_conv.csv")
	if err != nil { t.Fatal(err) }
	list, err := trace.OpenNodes("/work/shared/data/alibaba_gpu_2023_nodes.csv")
	if err != nil { t.Fatal(err) }
	for _, c := range []struct{n, r int; ev float64; ar ArrivalKind; full FullPolicy}{{0,100,1000,ArrivalsPoisson,FullDrop},{100000,4,200,ArrivalsTrace,FullDrop}} {
		var slots []int
		for _, n := range trace.Fleet(list, c.n) { slots = append(slots, n.Slots()) }
		sum := 0
		for _, s := range slots { sum += s }
		rate := 10000.0
		cfg := Config{Seed: 1, Replicas: c.r, Slots: slots, Rate: rate, Arrivals: c.ar, Durations: DurationsTrace, Requests: reqs,
			Jobs: 100000, WarmUp: 20000, Prefill: true, MeanDuration: time.Duration(0.8*float64(sum)/rate*1e9),
			EventDelay: Skewed(c.ev, 4*c.ev), RoundTrip: Skewed(150, 600), Heartbeat: 3*time.Second, Full: c.full}
		begin := time.Now()
		r, err := Run(cfg)
		if err != nil { t.Fatal(err) }
		data, _ := json.Marshal(r.Counts)
		fmt.Println(c, time.Since(begin), "rate", r.Rate(), "first", r.FirstRate(), "busy", r.Busy, r.BatchMean, r.Leaks, r.Spread)
		fmt.Println(string(data))
		fmt.Println(r.Delay[7], r.Delay[20], r.Delay[27], r.Ideal[20], r.Ideal[27])
	}
}
