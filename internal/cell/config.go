package cell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

const (
	// MaxConfigBytes bounds the dynamic configuration in its stored form.
	MaxConfigBytes = 1 << 20
	// MaxLanguagePairs bounds the index that follows from it.
	MaxLanguagePairs = 1 << 14
	// ConfigHistory is how many versions are kept.
	ConfigHistory = 100

	maxConfigAuthor = 128
	maxConfigNote   = 1024
	metaSuffix      = ":meta"
	actionApply     = "apply"
	actionRollback  = "rollback"
)

// Config is the dynamic configuration, a JSON object with its version. It and its
// history are kept in the first cell of a system only.
func (l Layout) Config() string { return l.key("config:phase3", "") }

// ConfigVersion is the hash of the configuration's version and generation.
func (l Layout) ConfigVersion() string { return l.key("version:config", "") }

// LanguagePairs is the hash of the pools by language pair ("zh:en" -> "pool-1,pool-2").
func (l Layout) LanguagePairs() string { return l.key("index:lang_pairs", "") }

// LanguagePairsVersion is the version of the configuration that last changed LanguagePairs.
func (l Layout) LanguagePairsVersion() string { return l.key("version:index", "") }

// ConfigHistory is the hash of the last versions: <version> and <version>:meta.
func (l Layout) ConfigHistory() string { return l.key("config:history", "") }

// ConfigEvents is the channel of configuration updates. It has no tag: messages go by
// PUBLISH, which on a cluster reaches the subscribers of every server.
func (l Layout) ConfigEvents() string { return l.Prefix + ":events:config_update" }

// ConfigState is the dynamic configuration as it is in Redis, whoever put it there.
type ConfigState struct {
	// Version is the counter's, 0 without a counter.
	Version uint64
	// Generation was made with the counter; empty without one.
	Generation string
	// Server names the history that the server's data belongs to, as History does.
	Server string
	// Type is what Redis keeps under the key; "none" when there is nothing.
	Type string
	// Length is that of the configuration in bytes.
	Length int
	// Content is nil unless Type is "string" and Length is at most MaxConfigBytes.
	Content []byte
	// PausedType is what Redis keeps under the key of what is paused; "none" when there is
	// nothing. Paused is empty unless it is "string" and no longer than MaxConfigBytes.
	PausedType string
	Paused     []byte
}

// ConfigChange is a configuration to put in force.
type ConfigChange struct {
	// Seen is the version that the caller based it on; 0 means none.
	Seen uint64
	// Content is a JSON object without "version", in canonical form: equal ones are
	// the same configuration.
	Content []byte
	// LanguagePairs are the pools, joined by commas, by language pair.
	LanguagePairs map[string]string
	// Paused is a JSON object in canonical form; empty leaves what is paused as it is.
	Paused       []byte
	Author, Note string
	// Restores is the version whose content this is; 0 when it is none in particular.
	Restores uint64
}

// ConfigOutcome is what became of a ConfigChange.
type ConfigOutcome struct {
	Version    uint64
	Generation string
	// Unchanged is true when the content was in force already, as this version.
	Unchanged bool
	// NowMS is Redis' clock.
	NowMS int64
}

// ConfigConflictError is returned by ApplyConfig when the version is not the one that
// the caller saw. Nothing was changed.
type ConfigConflictError struct{ Seen, Current uint64 }

func (e *ConfigConflictError) Error() string {
	return fmt.Sprintf("the configuration is at version %d, expected %d", e.Current, e.Seen)
}

// ConfigEntry is one version of the history.
type ConfigEntry struct {
	Version uint64 `json:"version"`
	// Action is documented for its reader in the tag.
	Action   string `json:"action,omitempty" doc:"What made the version: apply, rollback, or pause or resume with what, such as pause service asr."`
	Author   string `json:"author,omitempty"`
	Note     string `json:"note,omitempty"`
	Restores uint64 `json:"restores,omitempty"`
	// AtMS is Redis' clock when it was put in force.
	AtMS int64 `json:"at_ms"`
	// Paused is what was paused then, a JSON object; empty where the release that made the
	// version did not know of that. It is no part of listings.
	Paused string `json:"-"`
}

// ReadConfig reads the dynamic configuration. What an operator broke is no error.
func (c *Cell) ReadConfig(ctx context.Context) (ConfigState, error) {
	keys := []string{c.layout.Config(), c.layout.ConfigVersion(), c.layout.ConfigPaused()}
	reply, err := c.runner.Call(ctx, c.scripts["config_read"], keys, []string{strconv.Itoa(MaxConfigBytes)}).ToArray()
	if err == nil {
		var state ConfigState
		if state, err = decodeConfigState(reply); err == nil {
			return state, nil
		}
	}
	return ConfigState{}, fmt.Errorf("read configuration: %w", err)
}

func decodeConfigState(reply []rueidis.RedisMessage) (state ConfigState, err error) {
	if len(reply) != 8 {
		return state, fmt.Errorf("reply has %d values, expected 8", len(reply))
	}
	version, err := intAt(reply, 0)
	if err != nil {
		return state, err
	}
	length, err := intAt(reply, 4)
	if err != nil {
		return state, err
	}
	state.Version, state.Length = uint64(version), int(length)
	var content, paused string
	for i, target := range map[int]*string{1: &state.Generation, 2: &state.Server, 3: &state.Type, 5: &content, 6: &state.PausedType, 7: &paused} {
		if *target, err = reply[i].ToString(); err != nil {
			return ConfigState{}, err
		}
	}
	if state.Type == "string" && state.Length <= MaxConfigBytes {
		state.Content = []byte(content)
	}
	if paused != "" {
		state.Paused = []byte(paused)
	}
	return state, nil
}

// ApplyConfig puts a configuration in force. It can be repeated without harm: what is
// in force already is Unchanged. Errors: *freeslot.Error (invalid_argument), *ConfigConflictError,
// ErrNotReplicated, else what Redis said.
func (c *Cell) ApplyConfig(ctx context.Context, change ConfigChange) (ConfigOutcome, error) {
	if err := change.validate(); err != nil {
		return ConfigOutcome{}, err
	}
	entry := ConfigEntry{Action: actionApply, Author: change.Author, Note: change.Note, Restores: change.Restores}
	if change.Restores > 0 {
		entry.Action = actionRollback
	}
	meta, err := remark(entry)
	if err != nil {
		return ConfigOutcome{}, fmt.Errorf("apply configuration: %w", err)
	}
	l := c.layout
	keys := []string{l.Config(), l.ConfigVersion(), l.LanguagePairsVersion(), l.LanguagePairs(), l.ConfigHistory(), l.ConfigPaused()}
	args := []string{
		strconv.FormatUint(change.Seen, 10), newGeneration(), string(change.Content), meta,
		l.ConfigEvents(), strconv.Itoa(ConfigHistory), string(change.Paused),
	}
	for _, pair := range slices.Sorted(maps.Keys(change.LanguagePairs)) {
		args = append(args, pair, change.LanguagePairs[pair])
	}
	reply, err := c.runner.CallConfirmed(ctx, c.scripts["config_apply"], keys, args, isConflict).ToArray()
	if err != nil {
		return ConfigOutcome{}, fmt.Errorf("apply configuration: %w", err)
	}
	return decodeConfigOutcome(reply, change.Seen)
}

func isConflict(r rueidis.RedisResult) bool {
	reply, err := r.ToArray()
	if err != nil || len(reply) == 0 {
		return false
	}
	status, err := reply[0].AsInt64()
	return err == nil && status == -1
}

func decodeConfigOutcome(reply []rueidis.RedisMessage, seen uint64) (ConfigOutcome, error) {
	if len(reply) != 4 {
		return ConfigOutcome{}, fmt.Errorf("apply configuration: reply has %d values, expected 4", len(reply))
	}
	var number [4]int64
	var err error
	for _, i := range []int{0, 1, 3} {
		if number[i], err = intAt(reply, i); err != nil {
			return ConfigOutcome{}, fmt.Errorf("apply configuration: %w", err)
		}
	}
	generation, err := reply[2].ToString()
	if err != nil {
		return ConfigOutcome{}, fmt.Errorf("apply configuration: %w", err)
	}
	out := ConfigOutcome{Version: uint64(number[1]), Generation: generation, NowMS: number[3]}
	switch number[0] {
	case 1:
		return out, nil
	case 0:
		out.Unchanged = true
		return out, nil
	case -1:
		return ConfigOutcome{}, &ConfigConflictError{Seen: seen, Current: out.Version}
	default:
		return ConfigOutcome{}, fmt.Errorf("apply configuration: unknown status %d", number[0])
	}
}

func (c *ConfigChange) validate() error {
	switch {
	case len(c.Content) < 3 || c.Content[0] != '{' || c.Content[len(c.Content)-1] != '}' || !json.Valid(c.Content):
		return freeslot.Invalid("config", "is not a JSON object")
	case len(c.Content)+len(`,"version":9007199254740992`) > MaxConfigBytes:
		return freeslot.Invalid("config", "has %d bytes, expected fewer than %d", len(c.Content), MaxConfigBytes)
	case len(c.LanguagePairs) > MaxLanguagePairs:
		return freeslot.Invalid("config.pools", "cover %d pairs of languages, expected at most %d", len(c.LanguagePairs), MaxLanguagePairs)
	}
	if len(c.Paused) > 0 {
		if err := validatePaused(c.Paused); err != nil {
			return err
		}
	}
	return validateRemarks(c.Author, c.Note)
}

func validateRemark(field, text string, longest int) error {
	if len(text) > longest || !printable(text) {
		return freeslot.Invalid(field, "is not a remark, expected at most %d bytes of UTF-8 without control characters", longest)
	}
	return nil
}

// ConfigVersions are the versions of the history, the newest first. What an operator
// broke is left out.
func (c *Cell) ConfigVersions(ctx context.Context) ([]ConfigEntry, error) {
	fields, err := c.runner.Do(ctx, "config_history", c.client.B().Hkeys().Key(c.layout.ConfigHistory()).Build()).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("history of the configuration: %w", err)
	}
	fields = slices.DeleteFunc(fields, func(field string) bool { return !isMetaField(field) })
	if len(fields) == 0 {
		return nil, nil
	}
	metas := c.client.B().Hmget().Key(c.layout.ConfigHistory()).Field(fields...).Build()
	texts, err := c.runner.Do(ctx, "config_history", metas).ToArray()
	if err != nil {
		return nil, fmt.Errorf("history of the configuration: %w", err)
	}
	entries := make([]ConfigEntry, 0, len(texts))
	for i, m := range texts {
		text, err := m.ToString() // nil: it went meanwhile
		if entry, ok := decodeConfigEntry(fields[i], text); err == nil && ok {
			entries = append(entries, entry)
		}
	}
	slices.SortFunc(entries, func(a, b ConfigEntry) int { return cmp.Compare(b.Version, a.Version) })
	return entries, nil
}

// ConfigAt reads one version of the history with its content, which an operator may have edited. Errors:
// *freeslot.Error (not_found), else what Redis said.
func (c *Cell) ConfigAt(ctx context.Context, version uint64) (ConfigEntry, []byte, error) {
	field := strconv.FormatUint(version, 10)
	cmd := c.client.B().Hmget().Key(c.layout.ConfigHistory()).Field(field, field+metaSuffix).Build()
	found, err := c.runner.Do(ctx, "config_history", cmd).ToArray()
	if err != nil {
		return ConfigEntry{}, nil, fmt.Errorf("version %d of the configuration: %w", version, err)
	}
	if len(found) == 2 && found[0].IsNil() && !found[1].IsNil() {
		return ConfigEntry{}, nil, &freeslot.Error{
			Code: freeslot.CodeNotFound, Field: "version",
			Message: fmt.Sprintf("version %d of the configuration changed what is paused and nothing else, while there was no configuration in Redis", version),
		}
	}
	if len(found) != 2 || found[0].IsNil() {
		return ConfigEntry{}, nil, &freeslot.Error{
			Code: freeslot.CodeNotFound, Field: "version",
			Message: fmt.Sprintf("version %d is not in the history of the configuration, which keeps the last %d", version, ConfigHistory),
		}
	}
	content, err := found[0].ToString()
	if err != nil {
		return ConfigEntry{}, nil, fmt.Errorf("version %d of the configuration: %w", version, err)
	}
	meta, _ := found[1].ToString()
	entry, ok := decodeConfigEntry(field+metaSuffix, meta)
	if !ok {
		entry = ConfigEntry{Version: version}
	}
	return entry, []byte(content), nil
}
