// Package linger lets clients read the answer to a request whose body was not read.
//
// If a server closes a connection with unread bytes, the connection is reset and the client may
// lose the answer: it sees "connection reset by peer" instead of the error.
package linger

import (
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// silence ends the wait for the rest of a body.
	silence = time.Second
	// longest and mostBytes bound what one request may cost beyond its answer.
	longest   = 30 * time.Second
	mostBytes = 256 << 20
)

// Handler serves by next. If next leaves a part of the body unread, Handler sends the answer and
// discards the rest, until the client is silent for a second. It is for handlers that end the
// connection then, by the header "Connection: close". A client that waits for "100 Continue" has
// sent no body, and a request for a protocol upgrade is left to next alone.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 || r.Header.Get("Upgrade") != "" {
			next.ServeHTTP(w, r)
			return
		}
		body := &body{ReadCloser: r.Body}
		r.Body = body
		next.ServeHTTP(w, r)
		if body.ended || !body.read && strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
			return
		}
		discard(http.NewResponseController(w), body.ReadCloser)
	})
}

func discard(line *http.ResponseController, rest io.Reader) {
	if line.Flush() != nil {
		return
	}
	begin, left := time.Now(), int64(mostBytes)
	for left > 0 && time.Since(begin) < longest {
		if line.SetReadDeadline(time.Now().Add(silence)) != nil {
			return
		}
		n, err := io.CopyN(io.Discard, rest, min(left, 64<<10))
		if err != nil {
			return
		}
		left -= n
	}
}

// body tracks how far it was read. Only the handler's goroutine uses it.
type body struct {
	io.ReadCloser
	read, ended bool
}

func (b *body) Read(p []byte) (int, error) {
	b.read = true
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}
