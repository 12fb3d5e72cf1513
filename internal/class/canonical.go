package class

import (
	"maps"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
)

// AppendCanonical appends the canonical form of "service with requirement r" to
// dst. Two jobs of the same class fit the same nodes, in the same order of
// preference. These make no difference: order and repetition of services, label
// rules and their values; order of labels; letter case of languages; spelling of
// version ranges; a service that is listed with and without a range; a preferred
// pool that is required anyway. r must be valid.
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
	return appendRules(dst, r)
}

// canonicalServices are all services with their ranges, sorted. A range takes the
// place of the bare name.
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

// appendRules appends the label rules. Names, operators and values have no control
// characters, so these keep them apart.
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

// canonicalTag folds the spellings of one tag: letter case, and '_' for '-'.
func canonicalTag(tag string) string {
	return strings.ReplaceAll(strings.ToLower(tag), "_", "-")
}

// Same reports whether a and b state the same in the same words and
// order; an absent list is the same as an empty one. It allocates nothing. What
// differs may still be of one class.
func Same(a, b *freeslot.Requirement) bool {
	return a.Pool == b.Pool && a.PreferredPool == b.PreferredPool &&
		a.SourceLanguage == b.SourceLanguage && a.TargetLanguage == b.TargetLanguage &&
		len(a.Services) == len(b.Services) && len(a.Labels) == len(b.Labels) && len(a.LabelRules) == len(b.LabelRules) &&
		(len(a.Services)+len(a.Labels)+len(a.LabelRules) == 0 || sameLists(a, b))
}

func sameLists(a, b *freeslot.Requirement) bool {
	return slices.Equal(a.Services, b.Services) && maps.Equal(a.Labels, b.Labels) && sameRules(a.LabelRules, b.LabelRules)
}

func sameRules(a, b []freeslot.LabelRule) bool {
	return slices.EqualFunc(a, b, func(x, y freeslot.LabelRule) bool {
		return x.Label == y.Label && x.Operator == y.Operator && slices.Equal(x.Values, y.Values)
	})
}

// sortedSet sorts list in place and drops repetitions.
func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
