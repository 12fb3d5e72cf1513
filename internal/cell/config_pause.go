package cell

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// PauseChange says what is to be paused from now on, all of it.
type PauseChange struct {
	// Seen is the version that the caller based it on; 0 means none.
	Seen uint64
	// Paused is a JSON object in canonical form; "{}" is nothing.
	Paused []byte
	// Action says what is done, "pause service asr", and Author and Note who does it and why.
	Action, Author, Note string
}

// PauseConfig puts what is paused in force as a new version of the dynamic configuration,
// of which the rest stays as it is. Errors: as ApplyConfig.
func (c *Cell) PauseConfig(ctx context.Context, change PauseChange) (ConfigOutcome, error) {
	if err := validatePaused(change.Paused); err != nil {
		return ConfigOutcome{}, err
	}
	if err := validateRemarks(change.Author, change.Note); err != nil {
		return ConfigOutcome{}, err
	}
	meta, err := remark(ConfigEntry{Action: change.Action, Author: change.Author, Note: change.Note})
	if err != nil {
		return ConfigOutcome{}, err
	}
	l := c.layout
	keys := []string{l.Config(), l.ConfigVersion(), l.ConfigHistory(), l.ConfigPaused()}
	args := []string{
		strconv.FormatUint(change.Seen, 10), newGeneration(), string(change.Paused), meta, l.ConfigEvents(), strconv.Itoa(ConfigHistory),
	}
	reply, err := c.runner.CallConfirmed(ctx, c.scripts["config_pause"], keys, args, isConflict).ToArray()
	if err != nil {
		return ConfigOutcome{}, fmt.Errorf("pause: %w", err)
	}
	return decodeConfigOutcome(reply, change.Seen)
}

// remark is what the history keeps of a version besides what the script knows.
func remark(e ConfigEntry) (string, error) {
	meta, err := json.Marshal(struct {
		Action   string `json:"action,omitempty"`
		Author   string `json:"author"`
		Note     string `json:"note,omitempty"`
		Restores uint64 `json:"restores,omitempty"`
	}{e.Action, e.Author, e.Note, e.Restores})
	if err != nil {
		return "", fmt.Errorf("apply configuration: %w", err)
	}
	return string(meta), nil
}

func validatePaused(paused []byte) error {
	if len(paused) < 2 || len(paused) > MaxConfigBytes || paused[0] != '{' || !json.Valid(paused) {
		return freeslot.Invalid("config.paused", "is not a JSON object of at most %d bytes", MaxConfigBytes)
	}
	return nil
}

func validateRemarks(author, note string) error {
	if err := validateRemark("author", author, maxConfigAuthor); err != nil {
		return err
	}
	return validateRemark("note", note, maxConfigNote)
}

// ConfigSeen is ConfigTold of a version without a generation.
func (c *Cell) ConfigSeen(ctx context.Context, version uint64) error {
	_, err := c.ConfigTold(ctx, version, "")
	return err
}

// ConfigTold tells the cell the version of the pools' configuration that nodes are chosen
// by, and the generation of its counter, "" for none. It returns false where a newer version of that
// generation was told before, which then goes on to count. Errors: what Redis said.
func (c *Cell) ConfigTold(ctx context.Context, version uint64, generation string) (bool, error) {
	keys := []string{c.layout.ServesVersion(), c.layout.ServesGeneration()}
	counts, err := c.runner.Call(ctx, c.scripts["serves"], keys, []string{strconv.FormatUint(version, 10), generation}).AsInt64()
	if err != nil {
		return false, fmt.Errorf("tell version of the configuration: %w", err)
	}
	return counts == 1, nil
}

// Served reports whether a replica has ever looked after the cell, which all do within a second of their start.
// Errors: what Redis said.
func (c *Cell) Served(ctx context.Context) (bool, error) {
	err := c.runner.Do(ctx, "check", c.client.B().Get().Key(c.layout.ServesVersion()).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether the cell is served: %w", err)
	}
	return true, nil
}

// followLimit is for how long what a replica said of itself is kept.
const followLimit = 10 * time.Minute

// Follow notes that the replica goes by this version of the configuration, and begins
// nothing by an older one any more. It is to be repeated well within ten minutes. Errors: what Redis said.
func (c *Cell) Follow(ctx context.Context, replica string, version uint64, generation string) error {
	if generation == "" {
		generation = "-"
	}
	args := []string{replica, strconv.FormatUint(version, 10), generation, millis(followLimit)}
	if err := c.runner.Call(ctx, c.scripts["follow"], []string{c.layout.Followed()}, args).Error(); err != nil {
		return fmt.Errorf("note the version of replica %s: %w", replica, err)
	}
	return nil
}

// Behind returns the replicas that are there and have not said that they go by this
// version of this generation, or a newer one; sorted. Errors: what Redis said.
func (c *Cell) Behind(ctx context.Context, version uint64, generation string) ([]string, error) {
	there, err := c.runner.Do(ctx, "follow", c.client.B().Zrange().Key(c.layout.Replicas()).Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("which replicas are there: %w", err)
	}
	said, err := c.runner.Do(ctx, "follow", c.client.B().Hgetall().Key(c.layout.Followed()).Build()).AsStrMap()
	if err != nil {
		return nil, fmt.Errorf("which versions replicas go by: %w", err)
	}
	there = slices.DeleteFunc(there, func(replica string) bool { return follows(said[replica], version, generation) })
	slices.Sort(there)
	return there, nil
}

func follows(said string, version uint64, generation string) bool {
	part := strings.Split(said, " ")
	if len(part) != 3 || part[1] != generation {
		return false
	}
	n, err := strconv.ParseUint(part[0], 10, 64)
	return err == nil && n >= version
}
