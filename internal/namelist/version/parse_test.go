package version

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/namelist/form"
)

func text(format Format, content string) *Upload {
	return &Upload{
		Open:  func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil },
		Bytes: int64(len(content)), Format: format,
	}
}

func line(id string, expires int64) string {
	if expires == 0 {
		return id + "\n"
	}
	return fmt.Sprintf("%s,%d\n", id, expires)
}

func parseText(t testing.TB, format Format, of form.Form, content string) (entries []string, report *Report, err error) {
	t.Helper()
	report, err = parse(context.Background(), text(format, content), of, 0, func(int64) {}, func(id string, expires int64) error {
		entries = append(entries, strings.TrimSuffix(line(id, expires), "\n"))
		return nil
	})
	return entries, report, err
}

// Dirty files, with the exact report.
func TestParse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	for name, c := range map[string]struct {
		format  Format
		form    form.Form
		content string
		want    []string
		lines   int64
		rejects []Reject
	}{
		"empty":           {CSV, form.Exact, "", nil, 0, nil},
		"one":             {CSV, form.Exact, "a", []string{"a"}, 1, nil},
		"expiry":          {CSV, form.Exact, "a,1700000000\nb,1700000000000\nc,2023-11-14T22:13:20Z\nd,2023-11-14T23:13:20.5+01:00\ne,\n", []string{"a,1700000000000", "b,1700000000000", "c,1700000000000", "d,1700000000500", "e"}, 5, nil},
		"bad expiry":      {CSV, form.Exact, "a,soon\nb,0\nc,-1\nd,1e9\ne,2023-11-14\nf, 1700000000\ng,99999999999999999999\nh,1969-01-01T00:00:00Z\ni,017\n", nil, 9, rejects(errExpiry.Error(), 1, 2, 3, 4, 5, 6, 7, 8, 9)},
		"byte order mark": {CSV, form.Exact, "\ufeffa\n\ufeffb\n", []string{"a", "\ufeffb"}, 2, nil},
		"CRLF":            {CSV, form.Exact, "a,1700000000\r\nb\r\n\r\nc", []string{"a,1700000000000", "b", "c"}, 4, rejects("invalid id: it is empty", 3)},
		"CR inside":       {TXT, form.Exact, "a\rb\nc\n", []string{"c"}, 2, rejects("invalid id: it has a control character", 1)},
		"header":          {CSV, form.Exact, "id,expiry\nid\n", []string{"id"}, 2, nil},
		"header, marked":  {CSV, form.Exact, "\ufeffid\r\na\r\n", []string{"a"}, 2, nil},
		"no header":       {TXT, form.Exact, "ids1\n", []string{"ids1"}, 1, nil},
		"bad UTF-8":       {TXT, form.Exact, "a\n\xff\xfe\nb\xc3\n张\n", []string{"a", "张"}, 4, rejects("invalid id: it is not UTF-8", 2, 3)},
		"UTF-16":          {TXT, form.Exact, "a\x00\nb\x00", nil, 2, rejects("invalid id: it has a control character", 1, 2)},
		"empty ids":       {CSV, form.Exact, "\n,\n,1700000000\n\"\"\n \n", nil, 5, slices.Concat(rejects("invalid id: it is empty", 1, 2, 3, 4), rejects("invalid id: it begins or ends with white space", 5))},
		"long ids":        {CSV, form.Exact, long[1:] + "\n" + long + "\n", []string{long[1:]}, 2, rejects("invalid id: it is longer than 256 bytes", 2)},
		"long lines":      {CSV, form.Exact, strings.Repeat("y", 5000) + "\na\n" + strings.Repeat("z", 100_000) + "\nb\n" + strings.Repeat("z", 200_000), []string{"a", "b"}, 5, rejects(errLine.Error(), 1, 3, 5)},
		"columns":         {CSV, form.Exact, "a,,\nb,1700000000,x\nc,d\n", nil, 3, slices.Concat(rejects(errColumns.Error(), 1, 2), rejects(errExpiry.Error(), 3))},
		"txt":             {TXT, form.Exact, "a,1\n\"b\"\n", []string{"a,1", `"b"`}, 2, nil},
		"quotes":          {CSV, form.Exact, "\"a,b\",1700000000\n\"say \"\"a\"\"\"\na\"b\n\"c\",\"1700000000\"\n", []string{"a,b,1700000000000", `say "a"`, `a"b`, "c,1700000000000"}, 4, nil},
		"bad quotes":      {CSV, form.Exact, "\"a\n\"b\"c\nd,\"\n\"e\" ,1\n", nil, 4, rejects(errQuote.Error(), 1, 2, 3, 4)},
		"lower":           {TXT, form.Lower, " A@B.com \né\n", []string{"a@b.com"}, 2, rejects("invalid id: it has characters that are not printable ASCII", 2)},
		"integer":         {TXT, form.Integer, "7\n007\n", []string{"7"}, 2, rejects("invalid id: it is not a whole number of 64 bits in its shortest form", 2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, content := range []string{c.content, zipped(t, c.content)} {
				got, report, err := parseText(t, c.format, c.form, content)
				want := &Report{Lines: c.lines, Rejected: int64(len(c.rejects)), Rejects: c.rejects, Header: strings.HasPrefix(name, "header")}
				if err != nil || !slices.Equal(got, c.want) || !cmp.Equal(report, want) {
					t.Errorf("%q, %v; expected %q\n%s", got, err, c.want, cmp.Diff(want, report))
				}
			}
		})
	}
}

// A header is known quoted and in any case, or by the choice; what looks like one is named.
func TestParseHeader(t *testing.T) {
	t.Parallel()
	for content, c := range map[string]struct {
		format  Format
		choice  HeaderChoice
		left    bool
		like    string
		entries int64
		why     string
	}{
		"id,expiry\na\n":                    {CSV, "", true, "", 1, ""},
		"\"id\",\"expiry\"\na\n":            {CSV, HeaderAuto, true, "", 1, ""},
		"\"ID\"x\na\n":                      {CSV, "", false, "", 1, errQuote.Error()},
		"id;expiry\na\n":                    {CSV, "", false, "", 1, errParted.Error()},
		"\ufeff\"ID\";\"Expiry\"\r\na\r\n":  {CSV, HeaderAuto, false, "", 1, errParted.Error()},
		"Id ; EXPIRY\na\n":                  {CSV, HeaderYes, false, "", 1, errParted.Error()},
		"user_id;until;note\na\n":           {CSV, "", false, "", 1, errParted.Error()},
		"a;2030-01-01T00:00:00Z\na\n":       {CSV, "", false, "", 1, errParted.Error()},
		"id;expiry\nb\n":                    {CSV, HeaderNo, false, "", 2, ""},
		"id;expiry\nc\n":                    {TXT, "", false, "", 2, ""},
		"a;b\nc\n":                          {CSV, "", false, "", 2, ""},
		"ID\na\n":                           {CSV, "", true, "", 1, ""},
		"Id , EXPIRY\r\na\r\n":              {CSV, "", true, "", 1, ""},
		"user_id\na\n":                      {CSV, "", false, "user_id", 2, ""},
		"\"User ID\"\na\n":                  {CSV, "", false, "User ID", 2, ""},
		"userId\na\n":                       {TXT, "", false, "userId", 2, ""},
		"E-Mail\na\n":                       {CSV, "", false, "E-Mail", 2, ""},
		"id\na\n":                           {TXT, "", false, "id", 2, ""},
		"user_id,until\na\n":                {CSV, "", false, "", 1, errExpiry.Error() + "; of a header, import with header yes"},
		"alice\nbob\n":                      {CSV, "", false, "", 2, ""},
		"user-1\nuser-2\n":                  {CSV, "", false, "", 2, ""},
		"user_1\n":                          {TXT, "", false, "", 1, ""},
		"id\nb\n":                           {CSV, HeaderNo, false, "", 2, ""},
		"user_id\nb\n":                      {CSV, HeaderNo, false, "", 2, ""},
		"user_id,until\nb\n":                {CSV, HeaderYes, true, "", 1, ""},
		"first line\nb\n":                   {TXT, HeaderYes, true, "", 1, ""},
		"\n":                                {TXT, HeaderYes, true, "", 0, ""},
		"":                                  {TXT, HeaderYes, false, "", 0, ""},
		strings.Repeat("x_", 3000) + "id\n": {TXT, "", false, "", 0, errLine.Error()},
	} {
		up := text(c.format, content)
		up.Header = c.choice
		entries := int64(0)
		r, err := parse(t.Context(), up, form.Exact, 0, func(int64) {}, func(string, int64) error { entries++; return nil })
		why := ""
		if err == nil && len(r.Rejects) > 0 {
			why = r.Rejects[0].Why
		}
		if err != nil || r.Header != c.left || r.HeaderLike != c.like || entries != c.entries || r.Entries() != c.entries || why != c.why {
			t.Errorf("%.40q as %s, header %q: %d entries, %q, %+v, %v; expected %+v", content, c.format, c.choice, entries, why, r, err, c)
		}
	}
}

// What had expired before the import, and durations in place of times, are refused by name.
func TestParseExpired(t *testing.T) {
	t.Parallel()
	const at = 1_700_000_000_000
	content := "a,3600\nb,1699999999\nc,1700000000\nd,1700000001\ne,2001-09-09T01:46:40Z\nf,99999999\ng,100000000\nh,\n"
	var got []string
	r, err := parse(t.Context(), text(CSV, content), form.Exact, at, func(int64) {}, func(id string, _ int64) error { got = append(got, id); return nil })
	const expired = "expired before the import"
	want := &Report{Lines: 8, Rejected: 6, Expired: 4, Rejects: []Reject{
		{1, errSmall.Error()}, {2, expired}, {3, expired}, {5, expired}, {6, errSmall.Error()}, {7, expired},
	}}
	if err != nil || !slices.Equal(got, []string{"d", "h"}) || !cmp.Equal(r, want) {
		t.Errorf("%q, %v, expected d and h\n%s", got, err, cmp.Diff(want, r))
	}
}

func rejects(why string, lines ...int64) (out []Reject) {
	for _, n := range lines {
		out = append(out, Reject{Line: n, Why: why})
	}
	return out
}

func zipped(t testing.TB, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, content)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestParseKeepsTheFirst(t *testing.T) {
	t.Parallel()
	got, report, err := parseText(t, TXT, form.Exact, strings.Repeat("\n", 2*MaxRejects)+"a\n")
	if err != nil || len(got) != 1 || report.Rejected != 2*MaxRejects || len(report.Rejects) != MaxRejects || report.Rejects[MaxRejects-1].Line != MaxRejects {
		t.Errorf("%d, %d kept, %v", report.Rejected, len(report.Rejects), err)
	}
}

func TestParseGzip(t *testing.T) {
	t.Parallel()
	bomb := zipped(t, strings.Repeat("a\n", 8<<20))
	if _, _, err := parseText(t, TXT, form.Exact, bomb); !errors.As(err, new(*TooLargeError)) {
		t.Errorf("bomb: %v", err)
	}
	ids := zipped(t, strings.Repeat("a\nb\n", 1000))
	if _, _, err := parseText(t, TXT, form.Exact, ids[:len(ids)-9]); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut: %v", err)
	}
	if got, _, err := parseText(t, TXT, form.Exact, zipped(t, "a\n")+zipped(t, "b\n")); len(got) != 2 || err != nil {
		t.Errorf("two members: %q, %v", got, err)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	up := &Upload{Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("a\nb"), errReader{broken})), nil
	}, Format: TXT}
	if _, err := parse(context.Background(), up, form.Exact, 0, func(int64) {}, func(string, int64) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("of the reader: %v", err)
	}
	if _, err := parse(context.Background(), text(TXT, "a\n"), form.Exact, 0, func(int64) {}, func(string, int64) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("of add: %v", err)
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// A file that ends within a record is refused, wherever its pieces end.
func TestReadRecords(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines-0000")
	var content []byte
	want := 0
	for len(content) < 3*pieceBytes {
		r := record{id: strings.Repeat("x", 1+want%256), expires: int64(want % 2)}
		content = r.append(content)
		want++
	}
	for _, end := range []int{len(content), len(content) - 1} {
		if err := os.WriteFile(path, content[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		got := 0
		err := readRecords(path, func(r record) error {
			if len(r.id) != 1+got%256 || r.expires != int64(got%2) {
				return fmt.Errorf("record %d is %+v", got, r)
			}
			got++
			return nil
		})
		if whole := end == len(content); whole != (err == nil) || whole != (got == want) {
			t.Errorf("%d bytes: %d records of %d, %v", end, got, want, err)
		}
	}
}

// Every line is an entry or a reject, and entries are what their form allows.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a\nb,1700000000\n", "\ufeffid,expiry\r\n\"a,\"\"b\",2023-11-14T22:13:20Z\r\n", "\x1f\x8b", "\"\n,\n\xff"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, content string, csv bool) {
		format := TXT
		if csv {
			format = CSV
		}
		entries := int64(0)
		report, err := parse(context.Background(), text(format, content), form.Exact, 0, func(int64) {}, func(id string, expires int64) error {
			entries++
			if clean, err := form.Exact.Clean(id); err != nil || clean != id || expires < 0 {
				return fmt.Errorf("%q, %d", id, expires)
			}
			r := record{id: id, expires: expires, remove: csv}
			if again, rest, ok := cut(string(r.append(nil)) + "x"); again != r || rest != "x" || !ok {
				return fmt.Errorf("%+v became %+v", r, again)
			}
			return nil
		})
		if strings.HasPrefix(content, "\x1f\x8b") {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := int64(strings.Count(content, "\n"))
		if content != "" && !strings.HasSuffix(content, "\n") {
			lines++
		}
		header := report.Lines - entries - report.Rejected
		if report.Lines != lines || header < 0 || header > 1 || int64(len(report.Rejects)) != min(report.Rejected, MaxRejects) {
			t.Fatalf("%d entries, %+v, expected %d lines", entries, report, lines)
		}
	})
}
