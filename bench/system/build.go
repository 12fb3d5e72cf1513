package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/testing/postgrestest"
)

// Freeslot is the program that runs this scheduler's nodes and clients, in bench/peers. CeleryLoad
// submits jobs for Celery's workers.
const (
	Freeslot   = "freeslot"
	CeleryLoad = "celeryload"
)

// Programs are the programs that systems are made of.
type Programs struct {
	// Scheduler is the path of the replica's program.
	Scheduler string
	// Commands are the command lines of the peers' programs, by name.
	Commands map[string][]string
}

// Build builds the replica's program and this scheduler's nodes and clients into folder; root is
// the product's folder.
func Build(ctx context.Context, root, folder string) (*Programs, error) {
	p := &Programs{Commands: make(map[string][]string)}
	var err error
	if p.Scheduler, err = measure.BuildProgram(ctx, root, folder, "scheduler"); err != nil {
		return nil, err
	}
	return p, p.buildGo(ctx, Freeslot, root, folder)
}

// BuildPeer builds a peer's program.
func (p *Programs) BuildPeer(ctx context.Context, name, root, folder string) error {
	switch name {
	case "bullmq":
		return p.installNode(ctx, root)
	case "python":
		return p.preparePython(ctx, root)
	case "celery":
		if err := p.findPython(ctx, name, peerFolder(root, name), "worker.py", "celery, redis"); err != nil {
			return err
		}
		return p.buildGoAs(ctx, CeleryLoad, peerFolder(root, name), folder)
	case "typescript":
		return p.buildTypeScript(ctx, root)
	case "river":
		for _, program := range []string{"initdb", "postgres"} {
			if _, err := postgrestest.Find(program); err != nil {
				return err
			}
		}
	}
	return p.buildGo(ctx, name, root, folder)
}

// Command is a peer's program with these arguments.
func (p *Programs) Command(name string, args ...string) *exec.Cmd {
	argv := append(append([]string(nil), p.Commands[name]...), args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = measure.PlainEnv()
	return cmd
}

// peerFolder is where a peer's program is; those of Go are modules of their own but for this
// scheduler's.
func peerFolder(root, name string) string { return filepath.Join(root, "bench", "peers", name) }

func (p *Programs) buildGo(ctx context.Context, name, root, folder string) error {
	return p.buildGoAs(ctx, name, peerFolder(root, name), folder)
}

func (p *Programs) buildGoAs(ctx context.Context, name, from, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, measure.BuildLimit)
	defer cancel()
	binary := filepath.Join(folder, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, ".")
	cmd.Dir = from
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", name, err, lastLine(out))
	}
	p.Commands[name] = []string{binary}
	return nil
}

func (p *Programs) installNode(ctx context.Context, root string) error {
	node, err := exec.LookPath("node")
	if err != nil {
		return fmt.Errorf("node is not installed: %w", err)
	}
	folder := peerFolder(root, "bullmq")
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "bullmq")); err != nil {
		ctx, cancel := context.WithTimeout(ctx, measure.BuildLimit)
		defer cancel()
		cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("npm ci: %w: %s", err, lastLine(out))
		}
	}
	p.Commands["bullmq"] = []string{node, filepath.Join(folder, "main.js")}
	return nil
}

// pythons are tried in turn: the first is a distribution's, for which its packages are.
var pythons = []string{"/usr/bin/python3", "python3"}

// Python finds an interpreter that has these modules.
func Python(ctx context.Context, modules string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	var errs []error
	for _, python := range pythons {
		out, err := exec.CommandContext(ctx, python, "-c", "import "+modules).CombinedOutput()
		if err == nil {
			return python, nil
		}
		errs = append(errs, fmt.Errorf("%s: import %s: %w: %s", python, modules, err, lastLine(out)))
	}
	return "", errors.Join(errs...)
}

func (p *Programs) findPython(ctx context.Context, name, folder, program, modules string) error {
	python, err := Python(ctx, modules)
	if err == nil {
		p.Commands[name] = []string{python, filepath.Join(folder, program)}
	}
	return err
}

// preparePython compiles the SDK, as an installation does: compiling at each start takes memory that
// is not given back.
func (p *Programs) preparePython(ctx context.Context, root string) error {
	if err := p.findPython(ctx, "python", peerFolder(root, "python"), "main.py", "websockets"); err != nil {
		return err
	}
	_, err := Output(ctx, filepath.Join(root, "sdk", "python"), p.Commands["python"][0], "-m", "compileall", "-q", "src")
	return err
}

// buildTypeScript builds the SDK, which brings its own Node. The program shares loops with BullMQ's,
// which gets the same Node.
func (p *Programs) buildTypeScript(ctx context.Context, root string) error {
	if err := p.installNode(ctx, root); err != nil {
		return err
	}
	sdk := filepath.Join(root, "sdk", "typescript")
	node := filepath.Join(sdk, "node_modules", "node", "bin", "node")
	steps := [][]string{{"ci", "--ignore-scripts", "--no-audit", "--no-fund"}, {"rebuild", "node"}, {"run", "build"}}
	if _, err := os.Stat(node); err == nil {
		steps = steps[2:]
	}
	ctx, cancel := context.WithTimeout(ctx, measure.BuildLimit)
	defer cancel()
	for _, args := range steps {
		if _, err := Output(ctx, sdk, "npm", args...); err != nil {
			return err
		}
	}
	p.Commands["typescript"] = []string{node, filepath.Join(peerFolder(root, "typescript"), "main.js")}
	p.Commands["bullmq"][0] = node
	return nil
}

// PeerVersion is the version of the module or package that a peer's program is built with; empty
// where there is none.
func PeerVersion(ctx context.Context, root, name string) string {
	module := map[string]string{"asynq": "github.com/hibiken/asynq", "machinery": "github.com/RichardKnop/machinery/v2", "river": "github.com/riverqueue/river", "etcd": "go.etcd.io/etcd/server/v3", "nats": "github.com/nats-io/nats-server/v2"}[name]
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module)
	switch name {
	case Freeslot:
		return ""
	case "celery":
		cmd = exec.CommandContext(ctx, pythons[0], "-c", "import celery; print(celery.__version__)")
	case "bullmq":
		cmd = exec.CommandContext(ctx, "node", "-p", "require('./node_modules/bullmq/package.json').version")
	}
	cmd.Dir = peerFolder(root, name)
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Versions names the servers that systems are made of, as far as they are installed: Redis,
// PostgreSQL, Node.
func Versions(ctx context.Context) (redis, postgres, node string, err error) {
	postgres = postgrestest.Version(ctx)
	if out, err := exec.CommandContext(ctx, "node", "--version").Output(); err == nil {
		node = "Node " + strings.TrimSpace(string(out))
	}
	r, err := StartRedis(ctx, AOFOff)
	if err != nil {
		return "", "", "", err
	}
	redis, err = measure.RedisVersion(ctx, r.Client)
	return redis, postgres, node, errors.Join(err, r.Stop())
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
