// Command progress is a service for nodeagent that reports the progress of its jobs. It gets
// {"steps": 5} and answers with NDJSON, a line each 200 ms:
//
//	go run ./examples/progress
//	nodeagent --node-id n1 --set 'services=[{name: slow, http: {url: "http://127.0.0.1:8000/", idle_timeout: 5s}}]'
//	schedctl submit slow '{"steps": 5}' --wait --progress
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"time"
)

const (
	address = "127.0.0.1:8000"
	pace    = 200 * time.Millisecond
	// headerTimeout bounds how long a request may take to come.
	headerTimeout = 5 * time.Second
)

func main() {
	server := &http.Server{Addr: address, Handler: handler(pace), ReadHeaderTimeout: headerTimeout}
	log.Fatal(server.ListenAndServe())
}

// handler ends with the request: the agent aborts it when the job is cancelled.
func handler(pace time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		// Each line is sent at once, because progress in a buffer is of no use.
		say := func(event map[string]any) error {
			if err := json.NewEncoder(w).Encode(event); err != nil {
				return err
			}
			return http.NewResponseController(w).Flush()
		}
		var job struct{ Steps int }
		if err := json.NewDecoder(r.Body).Decode(&job); err != nil || job.Steps < 1 {
			_ = say(
				map[string]any{"error": map[string]any{
					"code": "bad_steps", "message": "expected steps above 0", "retryable": false,
				}},
			)
			return
		}
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		for done := 1; done <= job.Steps; done++ {
			select {
			case <-r.Context().Done():
				return
			case <-ticker.C:
			}
			if say(map[string]any{"progress": map[string]int{"done": done, "of": job.Steps}}) != nil {
				return
			}
		}
		_ = say(map[string]any{"result": map[string]int{"steps": job.Steps}}) // the client may have gone
	}
}
