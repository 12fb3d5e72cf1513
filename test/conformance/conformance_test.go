package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// atOnce is how many scenarios are played at once, on a machine of any size: they wait most of the
// time.
const atOnce = "8"

// buildLimit bounds the building of the Go driver, on a machine that never built it.
const buildLimit = 5 * time.Minute

// root is the repository, in which drivers run. goDriver and tsDriver are the drivers that prepare
// builds.
var root, goDriver, tsDriver string

// language is one row of the table of drivers.
type language struct {
	name string
	// command is run in the repository, with the kind as its last argument: client or worker.
	command []string
	env     []string
}

func (l *language) args(kind string) []string {
	if kind == "node" {
		kind = "worker"
	}
	return append(slices.Clone(l.command), kind)
}

// other is a driver that is not in the table.
var other = flag.String("driver", "", "play against this command, which gets client or worker as its last argument, alone")

// languages is the table of drivers.
func languages() []*language {
	if *other != "" {
		return []*language{{name: "other", command: strings.Fields(*other)}}
	}
	return []*language{
		{name: "go", command: []string{goDriver}},
		{
			name:    "python",
			command: []string{"/usr/bin/python3", "sdk/python/conformance_driver.py"},
			env:     []string{"PYTHONPATH=sdk/python/src"},
		},
		{name: "typescript", command: []string{"node", tsDriver}},
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := errors.Join(prepare(), flag.Set("test.parallel", atOnce)); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
	code := m.Run()
	// What hands data on to a frozen process hangs for ever when its way is closed.
	err := goleak.Find(goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*NoopToxic).Pipe"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"))
	if code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		code = 1
	}
	os.Exit(code)
}

// prepare builds the drivers in Go and TypeScript.
func prepare() (err error) {
	if root, err = filepath.Abs("../.."); err != nil {
		return err
	}
	goDriver = filepath.Join(root, ".dev", "conformance", "driver")
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	err = build(ctx, ".", "build", "-buildvcs=false", "-o", goDriver, "./driver")
	if err != nil {
		return err
	}
	tsDriver = filepath.Join(root, ".dev", "conformance", "driver.mjs")
	return build(ctx, filepath.Join(root, "sdk", "typescript"), "tool", "-modfile=../../tools/go.mod", "esbuild",
		"test/driver.ts", "--bundle", "--platform=node", "--format=esm", "--outfile="+tsDriver, "--log-level=warning",
		"--alias:@freeslot/client=./src/index.ts", "--alias:@freeslot/client/worker=./src/worker/index.ts",
		"--alias:#socket=./src/socket_node.ts")
}

// build runs the go command in a folder.
func build(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}

// TestClient plays the scenarios for clients.
func TestClient(t *testing.T) { playAll(t, "client") }

// TestNode plays the scenarios for agents of nodes.
func TestNode(t *testing.T) { playAll(t, "node") }

func playAll(t *testing.T, kind string) {
	all := readScenarios(t, kind)
	for _, lang := range languages() {
		for _, sc := range all {
			t.Run(lang.name+"/"+sc.name, func(t *testing.T) {
				t.Parallel()
				play(t, lang, kind, sc)
			})
		}
	}
}

// TestReadme: the page describes every step.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	expect := func(step string) {
		if !strings.Contains(string(page), "`"+step+"`") {
			t.Errorf("README.md does not describe the step %q", step)
		}
	}
	for step := range plainSteps {
		expect(step)
	}
	for step := range openingSteps {
		expect("A " + step)
	}
	for step := range sessionSteps {
		expect("A " + step)
	}
}
