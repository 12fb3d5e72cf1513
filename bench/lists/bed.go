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
}

func openBed(ctx context.Context, b *tool.Bench, s size) (_ *bed, err error) {
	d := &bed{size: s, folder: b.Folder}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.scheduler, err = measure.BuildProgram(ctx, b.Root, b.Folder, "scheduler"); err != nil {
		return nil, err
	}
	if d.schedctl, err = measure.BuildProgram(ctx, b.Root, b.Folder, "schedctl"); err != nil {
		return nil, err
	}
	if d.control, err = system.StartRedis(ctx, system.AOFOff); err != nil {
		return nil, err
	}
	if d.data, err = system.StartRedis(ctx, system.AOFOff); err != nil {
		return nil, err
	}
	d.lists = lists.NewControl(d.control.Client, keyPrefix, false, zap.NewNop(), nil)
	return d, nil
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

// replica starts another replica.
func (d *bed) replica(ctx context.Context) (*system.Scheduler, error) {
	i := len(d.replicas) + 1
	r, err := system.StartScheduler(d.scheduler, d.control.URL(), i,
		"FREESLOT_LISTS__DIR="+filepath.Join(d.folder, "replica-"+strconv.Itoa(i)),
		"FREESLOT_LISTS__SERVERS={"+dataServer+": {url: '"+d.data.URL()+"'}}")
	if err != nil {
		return nil, err
	}
	d.replicas = append(d.replicas, r)
	return r, r.AwaitReady(ctx)
}

// used is what both servers use, in bytes.
func (d *bed) used(ctx context.Context) (sum float64, err error) {
	for _, redis := range []*system.Redis{d.control, d.data} {
		bytes, err := usedMemory(ctx, redis)
		if err != nil {
			return 0, err
		}
		sum += bytes
	}
	return sum, nil
}

func usedMemory(ctx context.Context, redis *system.Redis) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	text, err := redis.Client.Do(ctx, redis.Client.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, "used_memory:")
	line, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseFloat(line, 64)
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
func (d *bed) list(ctx context.Context, b *tool.Bench) error {
	if d.big != nil {
		return nil
	}
	r, err := d.replica(ctx) // it tells the control server of the list server
	if err != nil {
		return err
	}
	if err := d.create(ctx, bigList, filter.Fuse); err != nil {
		return err
	}
	b.Progress("importing %s ids", thousands(d.ids))
	big, err := d.load(ctx, r, bigList, d.ids, true)
	if err != nil {
		return err
	}
	_, _, err = d.switchTo(ctx, bigList, big.version.Number, 0)
	d.big = big
	return err
}

func (d *bed) create(ctx context.Context, list string, kind filter.Kind) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	_, err := d.lists.Create(ctx, list, lists.Spec{Server: dataServer, Settings: lists.Settings{Filter: kind}})
	return err
}

// load imports a file of the first ids as an operator does it, and accepts the version.
func (d *bed) load(ctx context.Context, r *system.Scheduler, list string, ids int, dirty bool) (*imported, error) {
	path := filepath.Join(d.folder, list+".csv")
	rejected, err := writeFile(path, ids, dirty)
	if err != nil {
		return nil, err
	}
	defer os.Remove(path) //nolint:errcheck // its folder goes, too
	out := &imported{}
	before, err := d.used(ctx)
	if err != nil {
		return nil, err
	}
	if out.idle, err = r.Resident(); err != nil {
		return nil, err
	}
	server, replica, err := d.cpu(r)
	if err != nil {
		return nil, err
	}
	watched, stop := context.WithCancel(ctx)
	highest := make(chan error, 1)
	go func() {
		var err error
		out.highest, err = r.HighestResident(watched, pollEvery)
		highest <- err
	}()
	begin := time.Now()
	var upload manage.Upload
	err = d.operate(ctx, r, &upload, "import", list, path)
	out.took = time.Since(begin)
	stop()
	if err := errors.Join(err, <-highest); err != nil {
		return nil, err
	}
	if out.server, out.replica, err = d.cpu(r); err != nil {
		return nil, err
	}
	out.server, out.replica = out.server-server, out.replica-replica
	if upload.State != manage.Ready {
		return nil, fmt.Errorf("import of list %s: it is %s: %s", list, upload.State, upload.Why)
	}
	out.version, out.upload = *upload.Version, upload.Op.Since.Sub(begin)
	if out.version.Count != int64(ids) || upload.Report.Rejected != int64(rejected) {
		return nil, fmt.Errorf("import of list %s: %d ids, %d rejected, expected %d and %d", list, out.version.Count, upload.Report.Rejected, ids, rejected)
	}
	after, err := d.used(ctx)
	if err != nil {
		return nil, err
	}
	out.bytes = after - before
	if dirty {
		ctx, cancel := context.WithTimeout(ctx, stepLimit)
		defer cancel()
		_, err = d.lists.Accept(ctx, list, out.version.Number)
	}
	return out, err
}

// cpu is what the list server and a replica have used so far, in seconds.
func (d *bed) cpu(r *system.Scheduler) (server, replica float64, err error) {
	if server, err = measure.CPUSeconds(d.data.PID()); err == nil {
		replica, err = measure.CPUSeconds(r.Cmd.Process.Pid)
	}
	return server, replica, err
}

// operate has schedctl do something with lists, and reads what it prints.
func (d *bed) operate(ctx context.Context, r *system.Scheduler, out any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, importLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.schedctl, append([]string{"--server", "http://" + r.Address, "--output", "json", "lists"}, args...)...)
	cmd.Env = measure.PlainEnv()
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return fmt.Errorf("schedctl lists %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return nil
}

// switchTo switches once so many clients have loaded the version. It returns when the step was
// begun that moves the pointer, and the revision of the switch.
func (d *bed) switchTo(ctx context.Context, list string, number int64, clients int) (at time.Time, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	op, err := d.lists.Begin(ctx, list, lists.Begin{Kind: lists.OpSwitch, Number: number, Holder: "bench", Serving: lists.AnyVersion, By: by})
	if err != nil {
		return at, 0, err
	}
	if _, err := d.lists.Prepare(ctx, list, op); err != nil {
		return at, 0, err
	}
	for {
		live, _, err := d.lists.Clients(ctx, list)
		if err != nil {
			return at, 0, err
		}
		prepared := 0
		for _, c := range live {
			if slices.Contains(c.Loaded, number) {
				prepared++
			}
		}
		if prepared >= clients {
			break
		}
		if err := measure.SleepUntil(ctx, time.Now().Add(pollEvery)); err != nil {
			return at, 0, fmt.Errorf("%d of %d clients are prepared: %w", prepared, clients, err)
		}
	}
	at = time.Now()
	h, err := d.lists.Switch(ctx, list, op, lists.AnyVersion)
	return at, h.Revision, err
}

// anyReplica is for what does not depend on how fresh it is.
func (d *bed) anyReplica(ctx context.Context) (*system.Scheduler, error) {
	if len(d.replicas) > 0 {
		return d.replicas[0], nil
	}
	return d.replica(ctx)
}
