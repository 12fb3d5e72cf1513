package cell

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func isMetaField(field string) bool {
	number, ok := strings.CutSuffix(field, metaSuffix)
	return ok && isDigits(number)
}

// decodeConfigEntry reads who made a version, and when. The field decides which version it is.
func decodeConfigEntry(field, text string) (ConfigEntry, bool) {
	var read struct {
		ConfigEntry
		Paused json.RawMessage `json:"paused"`
	}
	if json.Unmarshal([]byte(text), &read) != nil {
		return ConfigEntry{}, false
	}
	entry := read.ConfigEntry
	if len(read.Paused) > 0 && read.Paused[0] == '{' {
		entry.Paused = string(read.Paused)
	}
	version, err := strconv.ParseUint(strings.TrimSuffix(field, metaSuffix), 10, 64)
	entry.Version = version
	return entry, err == nil && version > 0
}

// printable is false for what could be a command to a terminal.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
