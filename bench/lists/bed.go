package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/namelist"
)

const (
	bigList     = "big"
	dataServer  = "data"
	keyPrefix   = namelist.DefaultKeyPrefix
	importLimit = 20 * time.Minute
	expandLimit = 5 * time.Minute
	callLimit   = time.Minute
	stepLimit   = 5 * time.Second
	pollEvery   = 10 * time.Millisecond
)

var by = lists.By{Author: "bench"}

// bed is what all parts share: a control server, a list server, a replica, and the list once a part
// needs it.
type bed struct {
	size
	folder, schedctl, scheduler string
	control, data               *system.Redis
	lists                       *lists.Control
	replicas                    []*system.Scheduler
	big                         *imported // nil until it is there
	expanded                    bool      // it has a second version
	segmented                   bool      // the segment is there
}

func openBed(ctx context.Context, b *tool.Bench, s size) *bed {
	d := &bed{size: s, folder: b.Folder, scheduler: b.Program(ctx, "scheduler"), schedctl: b.Program(ctx, "schedctl")}
	d.control = tool.Must(system.StartRedis(ctx, system.AOFOff))
	data, err := system.StartRedis(ctx, system.AOFOff)
	if err != nil {
		tool.Check(errors.Join(err, d.close()))
	}
	d.data, d.lists = data, lists.NewControl(d.control.Client, keyPrefix, false, zap.NewNop(), nil)
	return d
}

func (d *bed) close() (err error) {
	for _, r := range d.replicas {
		err = errors.Join(err, r.Stop())
	}
	for _, redis := range []*system.Redis{d.control, d.data} {
		if redis != nil {
			err = errors.Join(err, redis.Stop())
		}
	}
	return err
}

// replica starts another replica. env are more of its settings.
func (d *bed) replica(ctx context.Context, env ...string) *system.Scheduler {
	i := len(d.replicas) + 1
	r := tool.Must(system.StartScheduler(ctx, d.scheduler, d.control.URL(), i, append(env,
		"FREESLOT_LISTS__DIR="+filepath.Join(d.folder, "replica-"+strconv.Itoa(i)),
		"FREESLOT_LISTS__SERVERS={"+dataServer+": {url: '"+d.data.URL()+"'}}")...))
	d.replicas = append(d.replicas, r)
	return r
}

// used is what both servers use, in bytes.
func (d *bed) used(ctx context.Context) float64 {
	return usedMemory(ctx, d.control) + usedMemory(ctx, d.data)
}

func usedMemory(ctx context.Context, redis *system.Redis) float64 {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	text := tool.Must(redis.Client.Do(ctx, redis.Client.B().Info().Section("memory").Build()).ToString())
	_, rest, _ := strings.Cut(text, "used_memory:")
	line, _, _ := strings.Cut(rest, "\r\n")
	return tool.Must(strconv.ParseFloat(line, 64))
}

// imported is a version that was imported, and what that needed.
type imported struct {
	version lists.Version
	// upload is until the upload was committed, and took until the version was there.
	upload, took time.Duration
	// idle and highest are MiB of the replica, before and while.
	idle, highest float64
	bytes         float64 // of both servers
	// server and replica are the seconds of processor time of the list server and the replica.
	server, replica float64
}

func (i *imported) above() float64 { return i.highest - i.idle }

// list makes sure that there is the big list, which serves its first version.
func (d *bed) list(ctx context.Context, b *tool.Bench) {
	if d.big != nil {
		return
	}
	r := d.replica(ctx) // it tells the control server of the list server
	d.create(ctx, bigList, filter.Fuse)
	b.Progress("importing %s ids", thousands(d.ids))
	big := d.load(ctx, r, bigList, d.ids, true)
	d.switchTo(ctx, bigList, big.version.Number, 0)
	d.big = big
}

func (d *bed) create(ctx context.Context, list string, kind filter.Kind) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	tool.Must(d.lists.Create(ctx, list, lists.Spec{Server: dataServer, Settings: lists.Settings{Filter: kind}}))
}

// load imports a file of the first ids as an operator does it, and accepts the version.
func (d *bed) load(ctx context.Context, r *system.Scheduler, list string, ids int, dirty bool) *imported {
	path := filepath.Join(d.folder, list+".csv")
	rejected := tool.Must(writeFile(path, ids, dirty))
	defer os.Remove(path) //nolint:errcheck // its folder goes, too
	out := &imported{idle: tool.Must(r.Resident())}
	before := d.used(ctx)
	server, replica := tool.Must(system.NewMeter(ctx, nil, d.data.PID())), tool.Must(system.NewMeter(ctx, nil, r.PID()))
	watched, stop := context.WithCancel(ctx)
	highest := make(chan error, 1)
	go func() {
		var err error
		out.highest, err = r.HighestResident(watched, pollEvery)
		highest <- err
	}()
	begin := time.Now()
	var upload manage.Upload
	err := d.operate(ctx, r, &upload, "import", list, path)
	out.took = time.Since(begin)
	stop()
	tool.Check(errors.Join(err, <-highest))
	out.server, out.replica = tool.Must(server.Spent(ctx)).Processes, tool.Must(replica.Spent(ctx)).Processes
	if upload.State != manage.Ready {
		tool.Check(fmt.Errorf("import of list %s: it is %s: %s", list, upload.State, upload.Why))
	}
	out.version, out.upload = *upload.Version, upload.Op.Since.Sub(begin)
	if out.version.Count != int64(ids) || upload.Report.Rejected != int64(rejected) {
		tool.Check(fmt.Errorf("import of list %s: %d ids, %d rejected, expected %d and %d",
			list, out.version.Count, upload.Report.Rejected, ids, rejected))
	}
	out.bytes = d.used(ctx) - before
	if dirty {
		ctx, cancel := context.WithTimeout(ctx, stepLimit)
		defer cancel()
		tool.Must(d.lists.Accept(ctx, list, out.version.Number))
	}
	return out
}

// operate has schedctl do something with lists, and reads what it prints.
func (d *bed) operate(ctx context.Context, r *system.Scheduler, out any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, importLimit)
	defer cancel()
	args = append([]string{"--server", "http://" + r.Address, "--output", "json", "lists"}, args...)
	cmd := exec.CommandContext(ctx, d.schedctl, args...)
	cmd.Env = measure.PlainEnv()
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return fmt.Errorf("schedctl %q: %w: %s", args, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// switchTo switches once so many clients have loaded the version. It returns when the step was
// begun that moves the pointer, and the revision of the switch.
func (d *bed) switchTo(ctx context.Context, list string, number int64, clients int) (at time.Time, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	op := tool.Must(d.lists.Begin(ctx, list, lists.Begin{
		Kind: lists.OpSwitch, Number: number, Holder: "bench", Serving: lists.AnyVersion, By: by,
	}))
	tool.Must(d.lists.Prepare(ctx, list, op))
	for prepared := 0; ; {
		live, _, err := d.lists.Clients(ctx, list)
		tool.Check(err)
		prepared = 0
		for _, c := range live {
			if slices.Contains(c.Loaded, number) {
				prepared++
			}
		}
		if prepared >= clients {
			break
		}
		if err := measure.SleepUntil(ctx, time.Now().Add(pollEvery)); err != nil {
			tool.Check(fmt.Errorf("%d of %d clients are prepared: %w", prepared, clients, err))
		}
	}
	at = time.Now()
	return at, tool.Must(d.lists.Switch(ctx, list, op, lists.AnyVersion)).Revision
}

// twoVersions makes a list with two versions. The first one serves.
func (d *bed) twoVersions(ctx context.Context, list string, ids int) (numbers []int64) {
	if d.replicas == nil {
		d.replica(ctx)
	}
	d.create(ctx, list, filter.Fuse)
	for range 2 {
		numbers = append(numbers, d.load(ctx, d.replicas[0], list, ids, false).version.Number)
	}
	d.switchTo(ctx, list, numbers[0], 0)
	return numbers
}
