package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

const (
	// historyKept is the number of versions kept.
	historyKept = 100
	// metaSuffix ends the name of the field that says who made a version, and when.
	metaSuffix = ":meta"
)

// ConfigEntry is one version of the history.
type ConfigEntry struct {
	Version uint64 `json:"version"`
	// Action is documented for its reader in the tag.
	Action   string `json:"action,omitempty" doc:"What made the version: apply, rollback, or pause or resume with what, such as pause service asr."`
	Author   string `json:"author,omitempty"`
	Note     string `json:"note,omitempty"`
	Restores uint64 `json:"restores,omitempty"`
	// AtMS is the time at which it came into force, by Redis' clock.
	AtMS int64 `json:"at_ms"`
	// Paused holds what was paused then, as a JSON object. It is empty if the release that made the
	// version did not know of pauses. Listings leave it out.
	Paused string `json:"-"`
}

// remark returns what the history keeps of a version besides what the script knows.
func (e *ConfigEntry) remark() string {
	text, err := json.Marshal(struct {
		Action   string `json:"action,omitempty"`
		Author   string `json:"author"`
		Note     string `json:"note,omitempty"`
		Restores uint64 `json:"restores,omitempty"`
	}{e.Action, e.Author, e.Note, e.Restores})
	if err != nil {
		panic(fmt.Sprintf("pool: encode a remark: %v", err)) // nothing in it can fail
	}
	return string(text)
}

// Versions returns the versions in the history, newest first. It leaves out entries that an
// operator broke.
func (s *Store) Versions(ctx context.Context) ([]ConfigEntry, error) {
	fields, err := s.runner.Do(ctx, "config_history", s.runner.B().Hkeys().Key(s.keys.history).Build()).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("history of the configuration: %w", err)
	}
	fields = slices.DeleteFunc(fields, func(field string) bool { return !strings.HasSuffix(field, metaSuffix) })
	if len(fields) == 0 {
		return nil, nil
	}
	metas := s.runner.B().Hmget().Key(s.keys.history).Field(fields...).Build()
	texts, err := s.runner.Do(ctx, "config_history", metas).ToArray()
	if err != nil {
		return nil, fmt.Errorf("history of the configuration: %w", err)
	}
	entries := make([]ConfigEntry, 0, len(texts))
	for i, m := range texts {
		text, err := m.ToString() // nil: it was removed meanwhile
		if entry, ok := decodeEntry(fields[i], text); err == nil && ok {
			entries = append(entries, entry)
		}
	}
	slices.SortFunc(entries, func(a, b ConfigEntry) int { return cmp.Compare(b.Version, a.Version) })
	return entries, nil
}

// entry reads one version of the history with its content, which an operator may have edited.
// Errors: *freeslot.Error (not_found), or the error from Redis.
func (s *Store) entry(ctx context.Context, version uint64) (ConfigEntry, []byte, error) {
	field := strconv.FormatUint(version, 10)
	cmd := s.runner.B().Hmget().Key(s.keys.history).Field(field, field+metaSuffix).Build()
	found, err := s.runner.Do(ctx, "config_history", cmd).ToArray()
	if err == nil && len(found) != 2 {
		err = fmt.Errorf("%d values, expected 2", len(found))
	}
	if err != nil {
		return ConfigEntry{}, nil, fmt.Errorf("version %d of the configuration: %w", version, err)
	}
	if found[0].IsNil() {
		message := fmt.Sprintf(
			"version %d is not in the history of the configuration, which keeps the last %d", version, historyKept,
		)
		if !found[1].IsNil() {
			message = fmt.Sprintf(
				"version %d of the configuration changed what is paused and nothing else, "+
					"while there was no configuration in Redis",
				version,
			)
		}
		return ConfigEntry{}, nil, &freeslot.Error{Code: freeslot.CodeNotFound, Field: "version", Message: message}
	}
	content, err := found[0].ToString()
	if err != nil {
		return ConfigEntry{}, nil, fmt.Errorf("version %d of the configuration: %w", version, err)
	}
	meta, _ := found[1].ToString()
	entry, ok := decodeEntry(field+metaSuffix, meta)
	if !ok {
		entry = ConfigEntry{Version: version}
	}
	return entry, []byte(content), nil
}

// decodeEntry reads who made a version, and when. The name of the field holds the version.
func decodeEntry(field, text string) (ConfigEntry, bool) {
	var read struct {
		ConfigEntry
		Paused json.RawMessage `json:"paused"`
	}
	version, err := strconv.ParseUint(strings.TrimSuffix(field, metaSuffix), 10, 64)
	if err != nil || version == 0 || json.Unmarshal([]byte(text), &read) != nil {
		return ConfigEntry{}, false
	}
	entry := read.ConfigEntry
	entry.Version = version
	if len(read.Paused) > 0 && read.Paused[0] == '{' {
		entry.Paused = string(read.Paused)
	}
	return entry, true
}
