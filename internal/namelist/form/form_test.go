package form

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		form     Form
		id, want string
		why      *Error
	}{
		{Exact, "user-1", "user-1", nil},
		{Exact, "A b", "A b", nil},
		{Exact, "张三", "张三", nil},
		{Exact, "", "", errEmpty},
		{Exact, " a", "", errSpace},
		{Exact, "a ", "", errSpace},
		{Exact, "\u3000张", "", errSpace},
		{Exact, "张\u00a0", "", errSpace},
		{Exact, "a\x00", "", errControl},
		{Exact, "a\tb", "", errControl},
		{Exact, "张\u0085三", "", errControl},
		{Exact, "\xff\xfe", "", errUTF8},
		{Exact, strings.Repeat("a", 256), strings.Repeat("a", 256), nil},
		{Exact, strings.Repeat("a", 257), "", errLong},
		{Lower, " User@Example.com\r\n", "user@example.com", nil},
		{Lower, "  ", "", errEmpty},
		{Lower, "a\x01", "", errASCII},
		{Lower, "é", "", errASCII},
		{Integer, "0", "0", nil},
		{Integer, "-9223372036854775808", "-9223372036854775808", nil},
		{Integer, "9223372036854775808", "", errInteger},
		{Integer, "007", "", errInteger},
		{Integer, "-0", "", errInteger},
		{Integer, "+7", "", errInteger},
		{Integer, "--7", "", errInteger},
		{Integer, "-", "", errInteger},
		{Integer, "1_000", "", errInteger},
		{Integer, " 7", "", errInteger},
		{Form("later"), "a", "", errForm},
	} {
		got, err := tc.form.Clean(tc.id)
		var why *Error
		errors.As(err, &why)
		if why != tc.why || err == nil && got != tc.want {
			t.Errorf("%s.Clean(%q) = %q, %v; want %q, %v", tc.form, tc.id, got, err, tc.want, tc.why)
		}
	}
}

func TestCleanIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(Forms()).Draw(t, "form")
		id := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \t]?-?[0-9]{1,20}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "id")
		clean, err := f.Clean(id)
		if err != nil {
			return
		}
		if again, err := f.Clean(clean); err != nil || again != clean {
			t.Fatalf("%s: Clean(%q) = %q, and of that %q, %v", f, id, clean, again, err)
		}
		if !utf8.ValidString(clean) || strings.TrimSpace(clean) != clean || strings.ContainsFunc(clean, unicode.IsControl) {
			t.Fatalf("%s: Clean(%q) = %q", f, id, clean)
		}
		if n, err := strconv.ParseInt(clean, 10, 64); f == Integer && (err != nil || strconv.FormatInt(n, 10) != clean) {
			t.Fatalf("Clean(%q) = %q, which is not %d", id, clean, n)
		}
	})
}

// The vectors stand in docs/namelist.md: readers in other languages test with them.
func TestVectors(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/namelist.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		seed           uint64
		id             string
		hash           uint64
		segment, block uint32 // of 1000, and of 2^5
	}{
		{0, "user-1", 0x7c7615c11438e5c9, 486, 15},
		{1, "user-1", 0x6c330c40ec6d21c4, 422, 13},
		{math.MaxUint64, "user-1", 0xffd5a9bbf6281427, 999, 31},
		{42, "-9223372036854775808", 0xc00e422bfd2414f5, 750, 24},
		{42, "张三", 0x75ca06efe52d0052, 460, 14},
		{42, strings.Repeat("x", 256), 0xb5086695eca9151e, 707, 22},
	} {
		hash := Sum(tc.seed, tc.id)
		if segment, block := Segment(hash, 1000), Block(hash, 5); hash != tc.hash || segment != tc.segment || block != tc.block {
			t.Errorf("%d %.20q: %#x, segment %d, block %d; want %#x, %d, %d",
				tc.seed, tc.id, hash, segment, block, tc.hash, tc.segment, tc.block)
		}
		if row := fmt.Sprintf("`%016x` | %d | %d |", hash, tc.segment, tc.block); !strings.Contains(string(doc), row) {
			t.Errorf("docs/namelist.md has no row %s", row)
		}
	}
}

// Segments and blocks go through the ids in the order of their hashes; without bits there is one
// block.
func TestOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		a, b = min(a, b), max(a, b)
		n, blockBits := rapid.Uint32Min(1).Draw(t, "segments"), rapid.Uint8Max(20).Draw(t, "bits")
		if Segment(a, n) > Segment(b, n) || Segment(b, n) >= n {
			t.Fatalf("segments of %d: %d, %d", n, Segment(a, n), Segment(b, n))
		}
		if Block(a, blockBits) > Block(b, blockBits) || Block(b, blockBits) >= 1<<blockBits {
			t.Fatalf("blocks of 2^%d: %d, %d", blockBits, Block(a, blockBits), Block(b, blockBits))
		}
	})
}

func TestDigest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfDistinct(rapid.String(), rapid.ID).Draw(t, "ids")
		cut := rapid.IntRange(0, len(ids)).Draw(t, "cut")
		var whole, left, right Digest
		for i, id := range ids {
			whole.Add(id, int64(i))
		}
		for i := len(ids) - 1; i >= 0; i-- {
			part := &left
			if i >= cut {
				part = &right
			}
			part.Add(ids[i], int64(i))
		}
		left.Join(right)
		if left != whole || whole.Count() != int64(len(ids)) {
			t.Fatalf("in parts %s, whole %s", &left, &whole)
		}
		if len(ids) > 0 {
			var other Digest
			for i, id := range ids {
				other.Add(id, int64(i)+1)
			}
			if other == whole {
				t.Fatal("other expiries have the same digest")
			}
		}
	})
}
