package cell

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

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
