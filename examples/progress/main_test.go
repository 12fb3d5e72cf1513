package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"steps":2}`: `{"progress":{"done":1,"of":2}}` + "\n" + `{"progress":{"done":2,"of":2}}` + "\n" + `{"result":{"steps":2}}` + "\n",
		`{}`:          `{"error":{"code":"bad_steps","message":"expected steps above 0","retryable":false}}` + "\n",
	} {
		got := httptest.NewRecorder()
		handler(time.Millisecond)(got, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(payload)))
		if got.Body.String() != want || got.Header().Get("Content-Type") != "application/x-ndjson" {
			t.Errorf(`%s: %s; want got.Body.String() == %v, got.Header().Get("Content-Type") == "application/x-ndjson"`, payload, got.Body, want)
		}
	}
}
