package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// misread are log events of a program that could not read what another release wrote.
var misread = []string{
	"cache.bad_event", "cache.foreign_node", "config.invalid", "dispatch.unreadable", "http.handler_panicked", "job.record_missing",
	"job.unreadable", "node.unreadable", "queue.unreadable", "reply.unreadable",
}

// checkLogs looks for what a program could not read that one of the other release had written.
func (u *upgrade) checkLogs() (found []Violation) {
	for _, name := range slices.Sorted(maps.Keys(u.programs)) {
		counts, err := eventsLogged(filepath.Join(u.folder, name+".log"))
		if err != nil {
			u.t.Error(err)
		}
		for _, event := range misread {
			if n := counts[event]; n > 0 {
				found = append(found, Violation{Rule: "misread", Text: fmt.Sprintf("%s logged %s %d times", name, event, n)})
			}
		}
	}
	return found
}

// eventsLogged counts the lines of a log by their events.
func eventsLogged(name string) (map[string]int, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	counts, lines := map[string]int{}, bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Event string `json:"event"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil {
			counts[line.Event]++
		}
	}
	return counts, lines.Err()
}
