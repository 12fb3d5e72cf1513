package selection

import (
	"slices"
	"strings"
	"testing"
)

func TestLanguageLookup(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ask, offered string
		want         bool
	}{
		{"de", "de", true},
		{"de-AT", "de", true},
		{"de", "de-AT", false},
		{"de-AT", "de-CH", false},
		{"de-AT", "DE", true},
		{"DE-at", "de-AT", true},
		{"de_AT", "de-at", true},
		{"zh-Hant-TW", "zh-Hant", true},
		{"zh-Hant-TW", "zh", true},
		{"zh-Hant-TW", "zh-TW", false},
		{"zh-Hant", "zh-Hans", false},
		{"den", "de", false},
		{"de-u-co-phonebk", "de-u-co", true},
		{"de-u-co-phonebk", "de", true},
		{"de-u-co-phonebk", "de-u", false},
		{"zh-Hant-CN-x-private1-private2", "zh-Hant-CN-x-private1", true},
		{"zh-Hant-CN-x-private1-private2", "zh-Hant-CN-x", false},
		{"zh-Hant-CN-x-private1-private2", "zh-Hant-CN", true},
		{"de-x-a-b", "de-x-a", false},
		{"de-x-a-b", "de", true},
		{"x-lab", "x-lab", true},
		{"x-lab-one", "x-lab", true},
		{"x-lab", "x", false},
		{"i-klingon", "i", false},
		{"iw", "he", false},
		{"", "", false},
		{"", "de", false},
	} {
		if got := newLanguages([]string{tc.offered}).find(fold(tc.ask)); got != tc.want {
			t.Errorf("%q finds %q: got %t, want %t", tc.ask, tc.offered, got, tc.want)
		}
	}
}

// The example of RFC 4647 section 3.4.
func TestLanguageShorten(t *testing.T) {
	t.Parallel()
	var got []string
	for tag := fold("zh-Hant-CN-x-private1-private2"); tag != ""; tag = shorten(tag) {
		got = append(got, tag)
	}
	want := []string{"zh-hant-cn-x-private1-private2", "zh-hant-cn-x-private1", "zh-hant-cn", "zh-hant", "zh"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLanguageLookupDoesNotAllocate(t *testing.T) {
	l, tag := newLanguages([]string{"en", "zh"}), fold("zh-Hant-TW-x-one-two")
	if n := testing.AllocsPerRun(100, func() { l.find(tag) }); n != 0 {
		t.Errorf("got %v allocations a lookup, want 0", n)
	}
}

// slowFind is the lookup from the other side: an offered tag is found if it
// is the job's tag, or begins it subtag by subtag and could have been left over
// by the shortening, which never leaves a single character at the end.
func slowFind(offered []string, ask string) bool {
	if ask == "" {
		return false
	}
	asked := slowSubtags(ask)
	for _, tag := range offered {
		subtags := slowSubtags(tag)
		if tag == "" || len(subtags) > len(asked) || !slices.Equal(subtags, asked[:len(subtags)]) {
			continue
		}
		if len(subtags) == len(asked) || len(subtags[len(subtags)-1]) != 1 {
			return true
		}
	}
	return false
}

func slowSubtags(tag string) []string {
	b := []byte(tag)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return strings.Split(strings.ReplaceAll(string(b), "_", "-"), "-")
}

func FuzzLanguageLookup(f *testing.F) {
	for _, seed := range [][2]string{
		{"de-AT", "de"},
		{"zh-Hant-TW", "ZH-hant,en"},
		{"de-x-a-b", "de-x-a,de-x"},
		{"de--at", "de-"},
		{"-de", ",-"},
		{"a-b-c", "a"},
		{"de_at", "de_"},
		{"K", "k"},
		{"\xff-a-bb", "\xff"},
		{"--", "-"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, ask, list string) {
		offered := strings.Split(list, ",")
		// Folding replaces bytes that are not UTF-8; no valid tag has any.
		if strings.ToValidUTF8(ask, "") != ask || strings.ToValidUTF8(list, "") != list {
			t.Skip()
		}
		if got, want := newLanguages(offered).find(fold(ask)), slowFind(offered, ask); got != want {
			t.Errorf("%q in %q: got %t, want %t", ask, offered, got, want)
		}
	})
}
