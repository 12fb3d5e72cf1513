package faults

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
)

// mostRetained is more bytes than the records of a run take: they are counted, and none is dropped.
const mostRetained = 1 << 30

// awaitRetained waits until the replica of this build reports how many bytes the records of ended
// jobs take, ended by either release.
func (u *upgrade) awaitRetained(ctx context.Context) {
	least, most, err := u.retained(ctx)
	if err != nil {
		u.t.Errorf("Redis cannot be read: %v", err)
		return
	}
	for {
		got, err := u.retainedBy(ctx, "r3")
		if err != nil {
			u.t.Errorf("the metrics of r3: %v", err)
			return
		}
		if least <= got && got <= most {
			return
		}
		if !pause(ctx, lookInterval) {
			u.t.Errorf("r3 tells of %d bytes of records; want %d to %d", got, least, most)
			return
		}
	}
}

// retained is what the records take, without their attempts and with them: the earlier release
// counts none, and either may have counted a record.
func (u *upgrade) retained(ctx context.Context) (least, most int64, err error) {
	const overhead = 900
	client, err := u.client()
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	keys, err := reader{client, ctx}.keys()
	if err != nil {
		return 0, 0, err
	}
	for _, key := range keys {
		if kind, _ := split(key); kind != "jobs" {
			continue
		}
		least += overhead
		most += overhead
		for _, field := range []string{"job", "spec", "result", "error", "progress", "attempts"} {
			n, err := client.Do(ctx, client.B().Hstrlen().Key(key).Field(field).Build()).AsInt64()
			if err != nil {
				return 0, 0, err
			}
			if most += n; field != "attempts" {
				least += n
			}
		}
	}
	return least, most, nil
}

// retainedBy is the sum that a replica reports for all cells.
func (u *upgrade) retainedBy(ctx context.Context, replica string) (sum int64, err error) {
	_, text, err := call(ctx, http.MethodGet, "http://"+u.replicas[replica]+"/metrics", nil, nil)
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "freeslot_retained_bytes{"); ok {
			_, value, _ := strings.Cut(rest, " ")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += int64(n)
		}
	}
	return sum, nil
}
