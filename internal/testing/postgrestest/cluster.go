package postgrestest

import (
	"context"
	"errors"
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

	"github.com/jackc/pgx/v5/pgconn"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// ErrNotFound is returned when a program of PostgreSQL is not installed.
var ErrNotFound = errors.New("it is not installed: scripts/deps.sh postgres")

const (
	// startPoll is how often a server is asked whether it is ready, and askLimit how long an answer
	// may take.
	startPoll = 20 * time.Millisecond
	askLimit  = 5 * time.Second
)

// Find returns the path of a program of PostgreSQL: in PATH, or where Debian has it. Errors:
// ErrNotFound.
func Find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program) // the pattern is sound
	if len(found) == 0 {
		return "", fmt.Errorf("%s: %w", program, ErrNotFound)
	}
	return slices.Max(found), nil
}

// Version returns the version of the server, or "" if there is none.
func Version(ctx context.Context) string {
	program, err := Find("postgres")
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

// Cluster is a folder with the data of one server, and an address on the loopback interface. Its
// caller runs the server.
type Cluster struct {
	folder string
	port   int
	as     *syscall.Credential // nil: who runs the tests
}

// Create makes the data of a server in a temporary folder, which Remove removes.
func Create(ctx context.Context) (_ *Cluster, err error) {
	initdb, err := Find("initdb")
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	if c.folder, err = os.MkdirTemp("", "freeslot-postgres-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Remove())
		}
	}()
	if c.as, err = credential(c.folder); err != nil {
		return nil, err
	}
	if c.port, err = redisserver.FreePort(); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, initdb, "-D", c.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Credential: c.as}, c.folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return c, nil
}

// credential returns who runs the server. It refuses root, so root runs it as another user.
func credential(folder string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.LookupId("65534") // without rights anywhere
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
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(folder, int(uid), int(gid))
}

func (c *Cluster) data() string { return filepath.Join(c.folder, "data") }

// URL returns the address of the database postgres, for a user who may do everything.
func (c *Cluster) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres", c.port)
}

// Addr returns the host and port of the server.
func (c *Cluster) Addr() string { return fmt.Sprintf("127.0.0.1:%d", c.port) }

// Command returns a command that runs the server with these settings, such as fsync=off. An
// interrupt ends it in good order, SIGQUIT at once.
func (c *Cluster) Command(settings ...string) (*exec.Cmd, error) {
	program, err := Find("postgres")
	if err != nil {
		return nil, err
	}
	args := []string{"-D", c.data(), "-p", strconv.Itoa(c.port), "-k", c.folder, "-c", "listen_addresses=127.0.0.1"}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Credential: c.as}, c.folder
	return cmd, nil
}

// Await returns when the server takes queries, or with an error once ended is closed.
func (c *Cluster) Await(ctx context.Context, ended <-chan struct{}) error {
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	for {
		err := c.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("postgres has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("postgres does not answer: %w", err)
		case <-tick.C:
		}
	}
}

func (c *Cluster) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := pgconn.Connect(ctx, c.URL())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Remove removes the data. The server must have ended.
func (c *Cluster) Remove() error { return os.RemoveAll(c.folder) }
