package console

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/dom"
)

// chooseFile gives the list's page a file, as a user who chooses it.
func (p *tab) chooseFile(file string) {
	p.t.Helper()
	call(p, dom.SetFileInputFiles, dom.SetFileInputFilesParams{
		Files: []string{file}, BackendNodeID: p.the("button", "A file of ids").id,
	})
}

// chunks returns the offsets of the chunks that the page has sent, in order.
func (p *tab) chunks() (offsets []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, request := range p.requests {
		if _, query, ok := strings.Cut(request, "?offset="); ok && strings.HasPrefix(request, "PUT ") {
			offset, _, _ := strings.Cut(query, "&")
			offsets = append(offsets, offset)
		}
	}
	return offsets
}

// TestUploadReloaded: a page that is loaded anew in the middle of an upload goes on, with the same
// file, behind the last chunk that arrived. Another file is refused.
func TestUploadReloaded(t *testing.T) {
	long(t)
	t.Parallel()
	const (
		chunk = 1 << 20 // the page's
		n     = 6_000
	)
	r := newFleet(t).replica("r1", "")
	r.shell("", "schedctl lists apply vip")
	var ids strings.Builder
	for i := range n {
		fmt.Fprintf(&ids, "%0199d\n", i) // 200 bytes, so that the file has two chunks
	}
	folder := t.TempDir()
	file, other := filepath.Join(folder, "ids.txt"), filepath.Join(folder, "other.txt")
	for name, text := range map[string]string{file: ids.String(), other: "x" + ids.String()} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/lists/vip")
	p.chooseFile(file)
	p.click("checkbox", "Switch to it")
	eval[bool](p, `(() => {
		const fetched = window.fetch;
		window.fetch = (...args) => String(args[0]?.url ?? args[0]).includes("offset=1048576") ? new Promise(() => {}) : fetched(...args);
		return true;
	})()`)
	p.click("button", "Import")
	p.shows("1 MiB of 1.14 MiB")
	address := eval[string](p, "location.href")
	p.open("about:blank")
	p.open(address)

	p.click("button", "Go on with it")
	p.chooseFile(other)
	p.click("button", "Go on")
	p.shows("It is not the file")
	p.chooseFile(file)
	p.click("button", "Go on")
	p.shows("Version 1 has 6\u202f000 ids.")
	if got, want := p.chunks(), []string{"0", fmt.Sprint(chunk)}; !slices.Equal(got, want) {
		t.Errorf("the page sent the chunks at %q; want %q", got, want)
	}
	r.list("version 1 to serve", func(l list) bool { return l.Serving.Number == 1 })
	for _, i := range []int{0, n / 2, n - 1} {
		if err := r.has(fmt.Sprintf("%0199d", i), true); err != nil {
			t.Error(err)
		}
	}
	p.clean(r.addr)
}
