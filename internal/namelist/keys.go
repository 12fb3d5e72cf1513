package namelist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// keys names the keys on the control server: all lists are in one cell. docs/design/namelist.md
// says what the keys hold.
type keys struct{ layout script.Layout }

func (k keys) index() string               { return k.layout.Key("lists:index", "") }
func (k keys) servers() string             { return k.layout.Key("lists:servers", "") }
func (k keys) record(list string) string   { return k.layout.Key("lists:record", list) }
func (k keys) versions(list string) string { return k.layout.Key("lists:versions", list) }
func (k keys) edits(list string) string    { return k.layout.Key("lists:edits", list) }
func (k keys) staged(list string) string   { return k.layout.Key("lists:staged", list) }
func (k keys) editIDs(list string) string  { return k.layout.Key("lists:edit_ids", list) }
func (k keys) clients(list string) string  { return k.layout.Key("lists:clients", list) }
func (k keys) readers(list string) string  { return k.layout.Key("lists:readers", list) }
func (k keys) readerCounts(list string) string {
	return k.layout.Key("lists:reader_counts", list)
}
func (k keys) turns() string              { return k.layout.Key("lists:stats_turns", "") }
func (k keys) counted(list string) string { return k.layout.Key("lists:counted", list) }
func (k keys) history(list string) string { return k.layout.Key("lists:history", list) }
func (k keys) applications() string       { return k.layout.Key("lists:applications", "") }
func (k keys) requesters() string         { return k.layout.Key("lists:requesters", "") }
func (k keys) requests(tenant string) string {
	return k.layout.Key("lists:requests", tenant)
}
func (k keys) chain(chain string) string { return k.layout.Key("lists:chain", chain) }
func (k keys) chainHistory(chain string) string {
	return k.layout.Key("lists:chain_history", chain)
}
func (k keys) change(list string) string { return k.layout.Key("list_change", list) }

// changing returns the keys of a list that edit.lua takes.
func (k keys) changing(list string) []string {
	return []string{k.index(), k.record(list), k.versions(list), k.edits(list), k.staged(list), k.editIDs(list)}
}

// all returns the keys of a list that step.lua takes.
func (k keys) all(list string) []string {
	return append(k.changing(list), k.counts(list)...)
}

// counts returns the keys of the reports and the statistics of a list or a chain, by its mark.
func (k keys) counts(mark string) []string {
	return []string{k.clients(mark), k.readers(mark), k.readerCounts(mark), k.counted(mark), k.history(mark)}
}

// ControlLayout returns the names of the control server's cell.
func ControlLayout(prefix string, cluster bool) script.Layout {
	return script.Layouts(prefix, 1, cluster)[0]
}

// IndexKey returns the key of the index of lists, for scripts of other packages that read it.
func IndexKey(layout script.Layout) string { return keys{layout}.index() }

// Channel returns the channel on which changes of a list are published; on a cluster by SPUBLISH.
func Channel(layout script.Layout, list string) string { return keys{layout}.change(list) }

// SegmentKey returns the key of a segment on a list server. Each segment has a hash tag of its own:
// otherwise a cluster would keep a whole list in one slot.
func SegmentKey(prefix, list string, version int64, segment uint32) string {
	return dataKey(prefix, list, version, strconv.FormatUint(uint64(segment), 10)+"}")
}

// SegmentKeys returns a faster SegmentKey for many segments of one version. The result is not safe
// for concurrent use.
func SegmentKeys(prefix, list string, version int64) func(segment uint32) string {
	name := []byte(dataKey(prefix, list, version, ""))
	stem := len(name)
	return func(segment uint32) string {
		name = append(strconv.AppendUint(name[:stem], uint64(segment), 10), '}')
		return string(name)
	}
}

// BlockKey returns the key of a block of a version's filter on a list server.
func BlockKey(prefix, list string, version int64, block uint32) string {
	return dataKey(prefix, list, version, "f"+strconv.FormatUint(uint64(block), 10)+"}")
}

// DataPattern returns the pattern that matches the segments and blocks of all lists.
func DataPattern(prefix string) string { return script.Layout{Prefix: prefix}.Key("lists", "{*_*_*}") }

// ParseDataKey parses a key that DataPattern matches.
func ParseDataKey(prefix, key string) (list string, version int64, block, ok bool) {
	inner, ok := strings.CutPrefix(key, script.Layout{Prefix: prefix}.Key("lists", "{"))
	parts := strings.Split(strings.TrimSuffix(inner, "}"), "_")
	if !ok || len(parts) != 3 || ValidateName("list", parts[0]) != nil {
		return "", 0, false, false
	}
	version, err := strconv.ParseInt(parts[1], 10, 64)
	return parts[0], version, strings.HasPrefix(parts[2], "f"), err == nil && version > 0
}

// dataKey returns the key of a segment or a block, given the last part of its name.
func dataKey(prefix, list string, version int64, part string) string {
	layout := script.Layout{Prefix: prefix}
	return layout.Key("lists", "{"+list+"_"+strconv.FormatInt(version, 10)+"_"+part)
}

// DataKeys returns the pattern of all segments and blocks of one list.
func DataKeys(prefix, list string) string {
	return script.Layout{Prefix: prefix}.Key("lists", "{"+list+"_*")
}

// ValidateName checks the name of a list. It must pass [freeslot.ValidateName] and have no '_', so
// that an ACL pattern for one list matches no other. The error names field.
func ValidateName(field, name string) error {
	if freeslot.ValidateName(field, name) != nil || strings.Contains(name, "_") {
		return freeslot.Invalid(
			field, "is %.64q, expected 1 to 64 characters of A-Z a-z 0-9 . -, beginning with a letter or digit", name,
		)
	}
	return nil
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// fault wraps the error of a call to Redis.
func fault(what, list string, err error) error { return fmt.Errorf("%s list %s: %w", what, list, err) }
