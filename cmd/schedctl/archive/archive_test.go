package archive

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	maxLine = 64 << 10
	goleak.VerifyTestMain(m)
}

// twoRecords is a backup of two records.
func twoRecords(tb testing.TB) string {
	tb.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{ID: "7f", AtMS: 1_768_045_312_000, Release: "v1"})
	for _, name := range []string{"vip", "läng\n<&>"} {
		if err == nil {
			err = w.Write("list", map[string]string{"name": name})
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return out.String()
}

// readAll reads a backup to its end, and returns its records in lines.
func readAll(in io.Reader) (string, error) {
	r, err := NewReader(in)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all.String(), nil
		}
		if err != nil {
			return "", err
		}
		all.WriteString(record.Kind + string(record.Data) + "\n")
	}
}

const content = `list{"name":"vip"}` + "\n" + `list{"name":"läng\n<&>"}` + "\n"

func TestReadBack(t *testing.T) {
	t.Parallel()
	text := twoRecords(t)
	if got, err := readAll(strings.NewReader(text)); err != nil || got != content {
		t.Errorf("%q, %v; want %q", got, err, content)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, text)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(bytes.NewReader(packed.Bytes())); err != nil || got != content {
		t.Errorf("compressed: %q, %v; want %q", got, err, content)
	}
	cut := packed.Bytes()[:packed.Len()-9]
	if _, err := readAll(bytes.NewReader(cut)); !errors.Is(err, ErrCut) {
		t.Errorf("a compressed one that is cut off: %v; want ErrCut", err)
	}
}

// TestRefused: a backup that is cut off anywhere, or has another byte anywhere, is refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	text := twoRecords(t)
	for i := range len(text) {
		if got, err := readAll(strings.NewReader(text[:i])); !errors.Is(err, ErrCut) {
			t.Errorf("cut off after %d bytes: %q, %v; want ErrCut", i, got, err)
		}
		other := []byte(text)
		other[i] ^= 1
		if got, err := readAll(bytes.NewReader(other)); err == nil {
			t.Errorf("another byte %d: %q; want an error", i, got)
		}
	}
	for name, c := range map[string]struct {
		text string
		want error
		says string
	}{
		"more":    {text + "\n", ErrDamaged, "something follows line 4"},
		"other":   {"id,expiry\na,\n", ErrForm, "line 1"},
		"format":  {strings.Replace(text, Format, "other", 1), ErrForm, `format is "other", expected freeslot-backup`},
		"later":   {strings.Replace(text, `"version":1`, `"version":2,"new":true`, 1), ErrVersion, `version is 2 (written by "v1"), expected at most 1`},
		"no id":   {strings.Replace(text, `"7f"`, `""`, 1), ErrForm, "no version, id or at_ms"},
		"long":    {strings.Repeat("{", maxLine+1), ErrDamaged, "line 1 has more than"},
		"swapped": {strings.Replace(text, "vip", "piv", 1), ErrDamaged, "it has 2 records and sum"},
	} {
		if got, err := readAll(strings.NewReader(c.text)); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v; want %v with %q", name, got, err, c.want, c.says)
		}
	}
}

func TestLineTooLong(t *testing.T) {
	t.Parallel()
	w, err := NewWriter(io.Discard, Header{ID: "7f", AtMS: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write("document", strings.Repeat("x", maxLine)); err == nil || !strings.Contains(err.Error(), "expected at most") {
		t.Errorf("%v; want that the line is too long", err)
	}
}

// FuzzReader: no input crashes the reader, and what it takes is read the same when it is written
// again.
func FuzzReader(f *testing.F) {
	text := twoRecords(f)
	f.Add([]byte(text))
	f.Add([]byte(text[:len(text)-2]))
	f.Add([]byte("{}\n{\"kind\":\"end\"}\n"))
	f.Add([]byte{0x1f, 0x8b, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readAll(bytes.NewReader(data))
		if err != nil {
			return
		}
		r, err := NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w, err := NewWriter(&out, r.Header)
		for err == nil {
			var record Record
			if record, err = r.Next(); err == nil {
				err = w.Write(record.Kind, record.Data)
			}
		}
		if !errors.Is(err, io.EOF) || w.Close() != nil {
			t.Fatal(err)
		}
		if _, err := readAll(&out); err != nil {
			t.Errorf("%q is read, and not when it is written again: %v", got, err)
		}
	})
}
