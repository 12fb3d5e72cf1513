package class

import (
	"maps"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
)

// AppendCanonical appends the canonical form of "service with requirement r" to dst. r must be
// valid. Two jobs of the same class fit the same nodes, in the same order of preference. These make
// no difference: order and repetition of services, label rules and their values; order of labels;
// letter case of languages; spelling of version ranges; a service that is listed both with and
// without a range; a preferred pool that is also required.
func AppendCanonical(dst []byte, service string, r *freeslot.Requirement) []byte {
	dst = append(dst, "s="...)
	dst = append(dst, strings.Join(canonicalServices(service, r), ",")...)
	dst = append(dst, " p="...)
	dst = append(dst, r.Pool...)
	if r.PreferredPool != "" && r.PreferredPool != r.Pool {
		dst = append(dst, '>')
		dst = append(dst, r.PreferredPool...)
	}
	dst = append(dst, " l="...)
	dst = append(dst, canonicalTag(r.SourceLanguage)...)
	dst = append(dst, '>')
	dst = append(dst, canonicalTag(r.TargetLanguage)...)
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		dst = append(dst, '\x00')
		dst = append(dst, name...)
		dst = append(dst, '=')
		dst = append(dst, r.Labels[name]...)
	}
	return appendFeatures(appendRules(dst, r), r)
}

// canonicalServices returns all services with their ranges, sorted. A range replaces the bare name.
func canonicalServices(service string, r *freeslot.Requirement) []string {
	list := append(make([]string, 0, len(r.Services)+1), service)
	ranged := make(map[string]bool)
	for _, entry := range r.Services {
		name, versions := freeslot.SplitService(entry)
		if versions != "" {
			parsed, _ := freeslot.ParseVersionRange(versions)
			entry = name + "@" + parsed.String()
			ranged[name] = true
		}
		list = append(list, entry)
	}
	return slices.DeleteFunc(sortedSet(list), func(entry string) bool { return ranged[entry] })
}

// appendRules appends the label rules. Names, operators and values have no control characters, so
// these separate them.
func appendRules(dst []byte, r *freeslot.Requirement) []byte {
	if len(r.LabelRules) == 0 {
		return dst
	}
	rules := make([]string, len(r.LabelRules))
	for i, rule := range r.LabelRules {
		values := sortedSet(slices.Clone(rule.Values))
		rules[i] = rule.Label + "\x02" + string(rule.Operator) + "\x02" + strings.Join(values, "\x02")
	}
	for _, rule := range sortedSet(rules) {
		dst = append(dst, '\x01')
		dst = append(dst, rule...)
	}
	return dst
}

// appendFeatures appends nothing without features: a class without them keeps the id that it had
// in releases that did not know them.
func appendFeatures(dst []byte, r *freeslot.Requirement) []byte {
	for _, name := range sortedSet(slices.Clone(r.Features)) {
		dst = append(dst, '\x03')
		dst = append(dst, name...)
	}
	return dst
}

// canonicalTag folds the spellings of one tag: letter case, and '_' for '-'.
func canonicalTag(tag string) string {
	return strings.ReplaceAll(strings.ToLower(tag), "_", "-")
}

// Same reports whether a and b are equal in the same words and order; an absent list equals an
// empty one. It allocates nothing. Requirements that are not the same can still be of one class.
func Same(a, b *freeslot.Requirement) bool {
	return a.Pool == b.Pool && a.PreferredPool == b.PreferredPool &&
		a.SourceLanguage == b.SourceLanguage && a.TargetLanguage == b.TargetLanguage &&
		slices.Equal(a.Services, b.Services) && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Features, b.Features) &&
		slices.EqualFunc(a.LabelRules, b.LabelRules, func(x, y freeslot.LabelRule) bool {
			return x.Label == y.Label && x.Operator == y.Operator && slices.Equal(x.Values, y.Values)
		})
}

// sortedSet sorts list in place and drops repetitions.
func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
