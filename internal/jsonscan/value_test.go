package jsonscan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestValue(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	for _, tt := range []struct {
		text string
		end  int
		form Form
	}{
		{`1`, 1, Compact},
		{`-0.5e+7,`, 7, Compact},
		{`12]`, 2, Compact},
		{`"a b"x`, 5, Compact},
		{`"\n\"\/"`, 8, Compact},
		{`"ü€"`, 7, Compact},
		{`{"a":[1,{"b":null},true],"c":{}}`, 32, Compact},
		{`[[],{}] `, 7, Compact},
		{deep, 2 * maxDepth, Compact},
		{`"<"`, 3, Valid},
		{"\"\u2029\"", 5, Valid},
		{`[1, 2]`, 6, Valid},
		{"{\"a\":\n1}", 8, Valid},
		{`{ }`, 3, Valid},
		{"[" + deep + "]", 0, Unsure},
		{`"\u00fc"`, 0, Unsure},
		{"\"\xff\"", 0, Unsure},
		{` 1`, 0, Unsure},
	} {
		end, form := Value([]byte(tt.text))
		if form != tt.form || form != Unsure && end != tt.end {
			t.Errorf("%s: ends at %d with form %d, expected %d and %d", tt.text, end, form, tt.end, tt.form)
		}
	}
	for _, text := range []string{
		``, `"`, `"a`, `"\`, `"\x"`, "\"\n\"", `{`, `[`, `[1`, `[1,`, `[1,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{1:1}`, `[1}`, `{"a":1]`, `-`, `1.`, `1e`,
		`.5`, `+1`, `tru`, `nul`, `falsy`, `}`, `]`, `,`, "\x00",
	} {
		if end, form := Value([]byte(text)); form != Unsure && end == len(text) {
			t.Errorf("%q has form %d", text, form)
		}
	}
}

// FuzzValue: whatever is not unsure is what encoding/json says.
func FuzzValue(f *testing.F) {
	for _, text := range []string{`{"a":[1,-2.5e3,"x\n<"],"b":{"c":null}}`, ` 1`, `"\u00e4"`, "\"\u2028ü\"", `01`, `[1,]`, `[[]] `, `{"a":1}x`, "\"\xff\""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := IsValid(data), utf8.Valid(data) && json.Valid(data); got != want {
			t.Fatalf("%q: valid %t, expected %t", data, got, want)
		}
		end, form := Value(data)
		if form == Unsure {
			return
		}
		text := data[:end]
		if !json.Valid(text) || !utf8.Valid(text) {
			t.Fatalf("%q has form %d", text, form)
		}
		if form == Compact {
			if got, err := json.Marshal(json.RawMessage(text)); err != nil || !bytes.Equal(got, text) {
				t.Fatalf("%q: json.Marshal makes %q, %v", text, got, err)
			}
		}
	})
}

func BenchmarkIsValid(b *testing.B) {
	for name, text := range map[string]string{
		"string":  `"` + strings.Repeat("x", 254) + `"`,
		"object":  `{"text":"Guten Morgen, wie geht es?","language":"de","options":{"speed":1.25,"voice":"anna","steps":[1,2,3,4]},"id":123456}`,
		"numbers": `[` + strings.Repeat("0.123456,", 28) + `1]`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if !IsValid([]byte(text)) {
					b.Fatal("not valid")
				}
			}
		})
		b.Run("twin/"+name, func(b *testing.B) {
			for b.Loop() {
				if !utf8.ValidString(text) || !json.Valid([]byte(text)) {
					b.Fatal("not valid")
				}
			}
		})
	}
}
