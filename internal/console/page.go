package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed dist
var dist embed.FS

const (
	index = "index.html"
	// hashPlace stands in the index for the directory of the other files.
	hashPlace = "{{hash}}"
	hashBytes = 6
)

// contentTypes holds the types of files by their extension.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// page holds the files of the page. It does not change.
type page struct {
	// hash names the contents of all files except the index.
	hash  string
	files map[string]*file // by name
}

// file is one file, as it is and compressed.
type file struct {
	contentType   string
	plain, packed []byte
	tag           string // the entity tag without quotes
}

// builtIn returns the page of this program. All replicas of a process share it, because compressing takes time.
var builtIn = sync.OnceValues(func() (*page, error) {
	folder, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	return loadPage(folder)
})

// loadPage reads all files of a folder.
func loadPage(folder fs.FS) (*page, error) {
	p := &page{files: make(map[string]*file)}
	texts, sum := make(map[string][]byte), sha256.New()
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error { // in the order of names
		if err != nil || entry.IsDir() {
			return err
		}
		if contentTypes[path.Ext(name)] == "" {
			return fmt.Errorf("%s: no content type is known", name)
		}
		text, err := fs.ReadFile(folder, name)
		texts[name] = text
		if name != index {
			fmt.Fprintf(sum, "%s %d\n", name, len(text))
			sum.Write(text)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("files of the console: %w", err)
	}
	p.hash = hex.EncodeToString(sum.Sum(nil)[:hashBytes])
	if !bytes.Contains(texts[index], []byte(hashPlace)) {
		return nil, fmt.Errorf("files of the console: %s has no %s", index, hashPlace)
	}
	texts[index] = bytes.ReplaceAll(texts[index], []byte(hashPlace), []byte(p.hash))
	for name, text := range texts {
		if p.files[name], err = newFile(name, text); err != nil {
			return nil, fmt.Errorf("compress %s: %w", name, err)
		}
	}
	return p, nil
}

func newFile(name string, text []byte) (*file, error) {
	sum := sha256.Sum256(text)
	f := &file{contentType: contentTypes[path.Ext(name)], plain: text, tag: hex.EncodeToString(sum[:hashBytes])}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	f.packed = packed.Bytes()
	return f, nil
}

// serveIndex answers with the page itself, which a browser has to ask for again each time.
func (p *page) serveIndex(w http.ResponseWriter, r *http.Request) {
	p.files[index].serve(w, r, "no-cache")
}

// serveFile answers with a file of the page. The index of another release asks for its own hash.
// During an upgrade that request may reach this replica, and gets the file of this release: a page
// without its script would stay empty. Such an answer is not kept.
func (p *page) serveFile(w http.ResponseWriter, r *http.Request) {
	f := p.files[r.PathValue("file")]
	hash := r.PathValue("hash")
	if f == nil || r.PathValue("file") == index || !isHash(hash) {
		notFound(w, r)
		return
	}
	if hash != p.hash {
		f.serve(w, r, "no-cache")
		return
	}
	f.serve(w, r, "public, max-age=31536000, immutable")
}

func isHash(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == hashBytes
}

func (f *file) serve(w http.ResponseWriter, r *http.Request, keep string) {
	text, tag := f.plain, `"`+f.tag+`"`
	h := w.Header()
	if acceptsGzip(r) {
		text, tag = f.packed, `"`+f.tag+`-gz"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Cache-Control", keep)
	h.Add("Vary", "Accept-Encoding")
	h.Set("ETag", tag)
	if matches(r.Header.Values("If-None-Match"), tag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Length", fmt.Sprint(len(text)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the browser may be gone
	}
}

// acceptsGzip reports whether the caller names gzip and does not rule it out.
func acceptsGzip(r *http.Request) bool {
	for one := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(one, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			weight = strings.TrimRight(strings.ReplaceAll(weight, " ", ""), "0")
			return weight != "q=" && weight != "q=0."
		}
	}
	return false
}

// matches reports whether one of the header's tags is this one. Tags are compared weakly: a proxy
// that packs answers makes them weak.
func matches(header []string, tag string) bool {
	for one := range strings.SplitSeq(strings.Join(header, ","), ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}
