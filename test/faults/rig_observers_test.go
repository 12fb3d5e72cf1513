package faults

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
)

const (
	// lookEvery is the pause of each of the lookers, lookAmong the number of the last jobs they
	// choose from.
	lookEvery = 20 * time.Millisecond
	lookAmong = 100
	lookLimit = 2 * time.Second
)

// look looks up jobs at random replicas until ctx ends.
func (f *fleet) look(ctx context.Context, rng *rand.Rand, open *register) {
	httpClient := &http.Client{Timeout: lookLimit, Transport: &http.Transport{}}
	defer httpClient.CloseIdleConnections()
	replicas := slices.Sorted(maps.Values(f.replicas))
	for pause(ctx, lookEvery) {
		list := open.all()
		if len(list) == 0 {
			continue
		}
		job := list[len(list)-1-rng.IntN(min(len(list), lookAmong))]
		e := Event{Kind: Looked, N: job.n, Job: job.id, From: f.rec.Now(), Who: replicas[rng.IntN(len(replicas))]}
		if lookUp(ctx, httpClient, &e) {
			f.rec.Add(e)
		}
	}
}

// watchSlots reads the slots in use from Redis until ctx ends.
func (f *fleet) watchSlots(ctx context.Context) {
	for pause(ctx, lookEvery) {
		redis, err := f.client()
		if err != nil {
			continue // it is down
		}
		for err == nil && pause(ctx, lookEvery) {
			err = f.readSlots(ctx, redis)
		}
		redis.Close()
	}
}

func (f *fleet) readSlots(ctx context.Context, redis rueidis.Client) error {
	limit, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	for node := range f.nodes {
		key := f.layout(node).Slots(node)
		used, err := redis.Do(limit, redis.B().Hget().Key(key).Field("sum").Build()).AsInt64()
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			return err
		}
		f.rec.Add(Event{Kind: Used, Node: node, Slots: int(used)})
	}
	return nil
}

// lookUp asks one replica; false when it did not answer.
func lookUp(ctx context.Context, httpClient *http.Client, e *Event) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.Who+"/v1/jobs/"+e.Job, http.NoBody)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+operatorToken)
	resp, err := httpClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return false
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound: // an event without a state
		return true
	default:
		return false
	}
	var status freeslot.JobStatus
	if err := json.Unmarshal(data, &status); err != nil {
		return false
	}
	withStatus(e, &status)
	return true
}

// askAgain has another client ask for the ends of all jobs, when they have ended.
func (f *fleet) askAgain(ctx context.Context, open *register) {
	clients := map[string]*client.Client{} // by tenant: nobody attaches to the jobs of another
	var asks sync.WaitGroup
	places := make(chan struct{}, 32)
	for _, job := range open.all() {
		c := clients[job.tenant]
		if c == nil {
			var err error
			if c, err = client.Dial(ctx, f.urls("r2"), client.Options{Name: lateClient, Token: job.tenant}); err != nil {
				f.t.Errorf("nobody answers a client that comes late: %v", err)
				return
			}
			defer c.Close()
			clients[job.tenant] = c
		}
		places <- struct{}{}
		asks.Go(func() {
			defer func() { <-places }()
			e := Event{Kind: AskedAgain, N: job.n, Job: job.id, From: f.rec.Now(), Who: lateClient}
			h, err := c.Attach(ctx, job.id)
			if err == nil {
				var status freeslot.JobStatus
				if status, err = h.Wait(ctx); err == nil {
					withStatus(&e, &status)
				}
			}
			if err != nil {
				e.Kind, e.Note = NoAnswer, err.Error()
			}
			f.rec.Add(e)
		})
	}
	asks.Wait()
}
