package jsonscan

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIsValid(t *testing.T) {
	t.Parallel()
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	for _, text := range []string{
		`1`, `-0.5e+7`, `"a b"`, `"\n\"\/"`, `"ü€"`, `{"a":[1,{"b":null},true],"c":{}}`, `[[],{}] `, `"<"`, "\"\u2029\"", `[1, 2]`, "{\"a\":\n1}", `{ }`,
		`"\u00fc"`, `"\ud800"`, ` 1`, `{"a":1,"a":2}`, nested(10_000),
	} {
		if !IsValid([]byte(text)) {
			t.Errorf("%.40q is not valid", text)
		}
	}
	for _, text := range []string{
		``, `"`, `"a`, `"\`, `"\x"`, "\"\n\"", `{`, `[`, `[1`, `[1,`, `[1,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{1:1}`, `[1}`, `{"a":1]`, `-`, `1.`, `1e`,
		`.5`, `+1`, `01`, `tru`, `nul`, `falsy`, `}`, `]`, `,`, `12]`, `-0.5e+7,`, `"a b"x`, "\x00", "\"\xff\"", nested(10_001),
	} {
		if IsValid([]byte(text)) {
			t.Errorf("%.40q is valid", text)
		}
	}
}
