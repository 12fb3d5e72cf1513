package freeslot

import (
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// MaxVersionRangeLength is the longest version range, in bytes.
const MaxVersionRangeLength = 128

// Every refusal of a range quotes rangeRule.
const rangeRule = "a range of semantic versions such as >=1.2 <2, ^1.4, ~1.2.3 or 1.x"

// SplitService cuts an entry of [Requirement.Services] into the service's name and the range of
// versions, which is "" when the entry names none.
func SplitService(entry string) (name, versions string) {
	name, versions, _ = strings.Cut(entry, "@")
	return name, versions
}

// VersionRange is a parsed range of versions. The zero value contains nothing. It is immutable
// and safe for concurrent use.
type VersionRange struct{ constraints *semver.Constraints }

// ParseVersionRange reads a range: comparisons (= != > >= < <=), ^1.4 (same major version), ~1.2
// (same minor version), 1.x and "1.2 - 1.4". Parts separated by a space or a comma must all hold.
// Of groups separated by || one must hold. A pre-release version is only in groups that name a
// pre-release themselves. The error is an [*Error] that names what was expected.
func ParseVersionRange(s string) (VersionRange, error) {
	single := strings.Contains(strings.ReplaceAll(s, "||", ""), "|")
	if len(s) <= MaxVersionRangeLength && strings.TrimSpace(s) != "" && !single && !strings.ContainsFunc(s, isControl) {
		if constraints, err := semver.NewConstraint(s); err == nil {
			return VersionRange{constraints}, nil
		}
	}
	return VersionRange{}, Invalid(
		"range", "is %q, expected %s, at most %d bytes long", s, rangeRule, MaxVersionRangeLength,
	)
}

// Contains reports whether a service of this version is in the range. A version may leave out its
// last numbers ("1.4" is 1.4.0) and begin with a v. A text that is not a semantic version is in no
// range.
func (v VersionRange) Contains(version string) bool {
	if v.constraints == nil {
		return false
	}
	parsed, err := semver.NewVersion(version)
	return err == nil && v.constraints.Check(parsed)
}

// String returns the range in canonical form, which does not depend on the spelling, order and
// repetition of its parts.
func (v VersionRange) String() string {
	if v.constraints == nil {
		return ""
	}
	groups := strings.Split(v.constraints.String(), " || ")
	for i, group := range groups {
		groups[i] = strings.Join(sortedSet(strings.Fields(group)), " ")
	}
	return strings.Join(sortedSet(groups), " || ")
}

// ValidateService checks a service with an optional version range, an entry of
// [Requirement.Services]. The error is an [*Error] with code [CodeInvalidArgument] that names
// field.
func ValidateService(field, entry string) error {
	name, versions, ranged := strings.Cut(entry, "@")
	if err := ValidateName(field, name); err != nil {
		return err
	}
	if !ranged {
		return nil
	}
	if _, err := ParseVersionRange(versions); err != nil {
		return Invalid(
			field, "is %q, expected after the @ %s, at most %d bytes long", entry, rangeRule, MaxVersionRangeLength,
		)
	}
	return nil
}

// sortedSet sorts list in place and drops repetitions.
func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
