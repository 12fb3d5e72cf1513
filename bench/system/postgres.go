package system

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// startPoll is how often a server is asked whether it is ready.
const startPoll = 20 * time.Millisecond

// postgres is a server in a folder of its own, which goes away with it.
type postgres struct {
	*measure.Process
	url, folder string
}

// postgresSettings are by durability: as an append-only file is off, everysec or always.
var postgresSettings = map[string][]string{
	AOFOff:     {"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"},
	"everysec": {"-c", "fsync=on", "-c", "synchronous_commit=off", "-c", "wal_writer_delay=200ms"},
	"always":   {"-c", "fsync=on", "-c", "synchronous_commit=on"},
}

// findPostgres looks for a program of Postgres in PATH, and where Debian has it.
func findPostgres(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is sound
	if len(found) == 0 {
		return "", fmt.Errorf("%s is not installed: scripts/deps.sh postgres", name)
	}
	return slices.Max(found), nil
}

func startPostgres(ctx context.Context, aof string) (_ *postgres, err error) {
	initdb, err := findPostgres("initdb")
	if err != nil {
		return nil, err
	}
	program, err := findPostgres("postgres")
	if err != nil {
		return nil, err
	}
	p := new(postgres)
	if p.folder, err = os.MkdirTemp("", "freeslot-postgres-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(p.folder)
		}
	}()
	as, err := postgresUser(p.folder)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(p.folder, "data")
	setUp := exec.CommandContext(ctx, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	setUp.SysProcAttr, setUp.Dir = as, p.folder
	if out, err := setUp.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	port, err := redisserver.FreePort()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"-D", data, "-p", strconv.Itoa(port), "-k", p.folder, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200",
		"-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB", "-c", "checkpoint_timeout=30min",
	}, postgresSettings[aof]...)
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr, cmd.Dir = as, p.folder
	if p.Process, err = measure.StartProcess("postgres", cmd); err != nil {
		return nil, err
	}
	p.url = "postgres://postgres@127.0.0.1:" + strconv.Itoa(port) + "/postgres"
	if err := p.await(ctx, port); err != nil {
		_ = p.Process.Cmd.Process.Kill()
		<-p.Done
		return nil, err
	}
	return p, nil
}

// postgresUser is who runs the server: it refuses root, so root runs it as the user postgres, or
// nobody.
func postgresUser(folder string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(folder, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// await waits until the server takes queries.
func (p *postgres) await(ctx context.Context, port int) error {
	psql, err := findPostgres("psql")
	if err != nil {
		return err
	}
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	for {
		if exec.CommandContext(ctx, psql, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "postgres", "-c", "SELECT 1").Run() == nil {
			return nil
		}
		select {
		case <-p.Done:
			return p.Exited()
		case <-ctx.Done():
			return fmt.Errorf("postgres does not answer: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// stop ends it by a fast shutdown, which is SIGINT to Postgres.
func (p *postgres) stop() error {
	_ = p.Cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-p.Done:
	case <-time.After(measure.StopGrace):
		_ = p.Cmd.Process.Kill()
		<-p.Done
	}
	return os.RemoveAll(p.folder)
}

func postgresVersion(ctx context.Context) string {
	program, err := findPostgres("postgres")
	if err != nil {
		return ""
	}
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(out))
	return "PostgreSQL " + fields[min(2, len(fields)-1)]
}
