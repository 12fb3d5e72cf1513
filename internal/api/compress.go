package api

import (
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

// leastCompressed is the size in bytes from which on an answer is worth compressing.
const leastCompressed = 1 << 10

// compressed compresses the JSON that the API answers to a GET, for callers that accept gzip. Lists
// of nodes and histories shrink to about a tenth. An answer with a job's result to its submitter
// stays as it is, because submitting is a POST.
//
// The size of an answer does not give a secret away (BREACH). Cookies and tokens travel in headers
// alone, and a page of an attacker cannot ask with the caller's cookie, which is SameSite=Strict.
func compressed(next http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(leastCompressed), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false),
		gzhttp.ContentTypes([]string{"application/json"}),
	)
	if err != nil {
		panic(err) // the options are constants
	}
	packing := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && mayCompress(r.URL.Path) {
			packing.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// mayCompress leaves out WebSockets, and the console's files, which are compressed already.
func mayCompress(path string) bool {
	return strings.HasPrefix(path, "/v1/") && path != SessionPath || path == ConsolePath+"/snapshot"
}
