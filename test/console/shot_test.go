package console

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

var update = flag.Bool("update", false, "write the pictures of the docs, after two minutes of load")

const (
	// pushes of the overview come every 2 s: enough of them that its charts have something to show.
	pushes       = 60
	pictureBytes = 150 << 10 // the most that a picture in git has
)

// TestShots takes the pictures of the docs of what `make run` starts. Without -update it only shows
// that this works.
func TestShots(t *testing.T) {
	long(t)
	t.Parallel()
	console := startDev(t)
	p := newBrowser(t).tab(wide)
	p.do(chromedp.EmulateViewport(1100, 760))
	p.theme("light")
	p.open(console + "#/?range=5m")
	seen := p.pushed("overview", 0)
	if *update {
		for range pushes {
			seen = p.pushed("overview", seen)
		}
	}
	p.picture("overview")
	p.press("g", "j")
	p.the("heading", "Jobs")
	p.loaded()
	p.picture("jobs")
	waittest.Until(t, "a dead job", func() bool { // the list does not read again by itself
		const dead = `fetch("../v1/jobs?state=dead&limit=1").then((r) => r.json()).then((l) => l.jobs.length > 0)`
		return eval[bool](p, dead)
	})
	p.open(console + "#/jobs?state=dead")
	waittest.Until(t, "dead jobs alone", func() bool {
		const all = `[...document.querySelectorAll("[data-row]")]`
		return eval[bool](p, all+`.length > 0 && `+all+`.every((r) => r.innerText.includes("dead"))`)
	})
	p.row("dead")
	p.press("\r")
	p.shows("Why it ended so")
	p.theme("dark")
	p.picture("job")
	p.theme("light")
	p.open(console + "#/queues")
	p.the("heading", "Queues")
	p.loaded()
	p.picture("queues")
}

// picture keeps a picture of the window, with -update among the docs.
func (p *tab) picture(name string) {
	p.t.Helper()
	window, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(window))
	if err != nil {
		p.t.Fatal(err)
	}
	var small bytes.Buffer // the browser compresses little
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, picture); err != nil {
		p.t.Fatal(err)
	}
	data := small.Bytes()
	if len(data) > pictureBytes {
		p.t.Errorf("the picture of %s has %d bytes; want at most %d", name, len(data), pictureBytes)
	}
	if !*update {
		return
	}
	file := filepath.Join(root, "docs", "console", name+".png")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// startDev starts what `make run` starts, and returns the address of its console, which it prints
// first.
func startDev(t *testing.T) string {
	t.Helper()
	takeTurn(t)
	cmd := exec.CommandContext(context.Background(), filepath.Join(programs, "scheduler"),
		"dev", "--listen", "127.0.0.1:0", "--redis-port", "0", "--dir", t.TempDir())
	cmd.Env = ownEnvironment()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == 0 {
				first <- lines.Text()
			}
		}
		close(first)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-ended
	})
	line := waittest.Receive(t, "the first line of scheduler dev", first)
	address, found := strings.CutPrefix(line, "console: ")
	if !found {
		t.Fatalf("scheduler dev begins with %q; want the console's address", line)
	}
	return address
}
