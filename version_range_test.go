package freeslot_test

import (
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

func TestVersionRange(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		versions string
		in, out  string // versions, parted by space
	}{
		{">=1.2 <2", "1.2 1.2.0 v1.9.9", "1 1.1.9 2.0.0 1.5.0-rc1 abc"},
		{">=1.2, <2", "1.2", "2"},
		{"^1.4", "1.4 1.99", "2 1.3"},
		{"~1.2.3", "1.2.3 1.2.9", "1.3 1.2.2"},
		{"1.x || 3.x", "1 3.7.1", "2 4"},
		{"1.2 - 1.4", "1.2 1.4.0 1.4.9", "1.5 1.1"},
		{"*", "0 7.1", "1-rc1 latest"},
		{"!=1.3.0", "1.2", "1.3"},
		{">=1.5.0-rc1", "1.5.0-rc2 1.5", "1.5.0-beta"},
	} {
		r, err := freeslot.ParseVersionRange(tc.versions)
		if err != nil {
			t.Errorf("%q: %v; want no error", tc.versions, err)
			continue
		}
		for _, version := range strings.Fields(tc.in) {
			if !r.Contains(version) {
				t.Errorf("%q does not contain %s", tc.versions, version)
			}
		}
		for _, version := range append(strings.Fields(tc.out), "", "1.2.3.4", "1.2.x") {
			if r.Contains(version) {
				t.Errorf("%q contains %q", tc.versions, version)
			}
		}
	}
	for _, bad := range []string{"", " ", "abc", ">=", ">=1.2 <", "1.2;", "1|2", "1.x.|", "||", "1 ||", ">=1.2\n<2", strings.Repeat("1", 129)} {
		if _, err := freeslot.ParseVersionRange(bad); err == nil || freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	if new(freeslot.VersionRange).Contains("1") {
		t.Error("the zero range contains something")
	}
}

func TestServiceEntries(t *testing.T) {
	t.Parallel()
	for entry, message := range map[string]string{
		"asr": "", "asr@>=1.2 <2": "", "asr@^1": "",
		"asr@":   `job.requirement.services[0] is "asr@", expected after the @ a range of semantic versions such as >=1.2 <2, ^1.4, ~1.2.3 or 1.x, at most 128 bytes long`,
		"asr@x@": `job.requirement.services[0] is "asr@x@", expected after the @ a range of semantic versions such as >=1.2 <2, ^1.4, ~1.2.3 or 1.x, at most 128 bytes long`,
		"@1":     "job.requirement.services[0] is 0 characters long, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit",
	} {
		job := freeslot.Job{Service: "tts", Requirement: freeslot.Requirement{Services: []string{entry}}}
		err := job.Validate("job")
		if (err == nil) != (message == "") || err != nil && err.Error() != "invalid_argument: "+message {
			t.Errorf("%q: got %v", entry, err)
		}
	}
}

// FuzzVersionRange: an accepted range has a canonical form that is accepted, is its own canonical
// form, and contains the same versions.
func FuzzVersionRange(f *testing.F) {
	for _, seed := range []string{">=1.2 <2", "<2,>=1.2", "^1.4 || ~2", "1.2 - 1.4", "1.x", "=1-rc1", "v1", "*", "~>1 !=1.3", "1.x.0+a"} {
		f.Add(seed, "1.2.3")
	}
	versions := []string{"0.9", "1", "1.2", "1.2.3", "1.3.0", "1.4.7", "2.0.0-rc1", "2", "3.1.4"}
	f.Fuzz(func(t *testing.T, text, version string) {
		r, err := freeslot.ParseVersionRange(text)
		if err != nil {
			return
		}
		canonical := r.String()
		// A rewritten "1.2 - 1.4" can be a little longer than the original.
		if len(canonical) > freeslot.MaxVersionRangeLength {
			return
		}
		again, err := freeslot.ParseVersionRange(canonical)
		if err != nil || again.String() != canonical {
			t.Fatalf("%q: canonical form %q is read as %q, %v", text, canonical, again.String(), err)
		}
		for _, v := range append(versions, version) {
			if r.Contains(v) != again.Contains(v) {
				t.Errorf("%q and %q differ on %q", text, canonical, v)
			}
		}
	})
}
