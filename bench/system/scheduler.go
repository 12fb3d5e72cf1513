package system

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strconv"

	"github.com/freeslot/freeslot/bench/measure"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// Scheduler is a replica as a process of its own.
type Scheduler struct {
	*measure.Process
	Address string
}

// StartScheduler starts the program against Redis as the i-th replica, from 1, and waits until it
// serves. env are more of its settings. The caller stops it.
func StartScheduler(ctx context.Context, program, redisURL string, i int, env ...string) (*Scheduler, error) {
	port, err := redisserver.FreePort()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	name := "replica " + strconv.Itoa(i)
	cmd := exec.Command(program, "serve")
	cmd.Env = measure.PlainEnv(append([]string{
		"FREESLOT_LISTEN=" + s.Address, "FREESLOT_REPLICA_ID=bench-" + strconv.Itoa(i),
		"FREESLOT_REDIS__URL=" + redisURL, "FREESLOT_LOG__LEVEL=warn",
	}, env...)...)
	if s.Process, err = measure.StartProcess(name, cmd); err != nil {
		return nil, err
	}
	if err := s.AwaitOK(ctx, "http://"+s.Address+"/readyz"); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}
