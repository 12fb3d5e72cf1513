package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// row is a row of the table.
type row map[string]string

// speakText runs the program on text and returns its exit status, its table by line number, and the
// folder with the WAV files.
func speakText(t *testing.T, text string, flags ...string) (code int, rows map[int]row, wav string) {
	t.Helper()
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	ctx := waittest.Context(t)
	code = run(ctx, append(append([]string{"-dir", dir}, flags...), "-"), strings.NewReader(text), &stdout, &stderr)
	if stderr.Len() > 0 {
		t.Errorf("standard error: %s", &stderr)
	}
	t.Logf("\n%s", &stdout)
	return code, parseTable(t, stdout.String()), filepath.Join(dir, "wav")
}

var columnGap = regexp.MustCompile(`\S+( \S+)*\s*`)

func parseTable(t *testing.T, text string) map[int]row {
	t.Helper()
	lines := strings.Split(text, "\n")
	columns := columnGap.FindAllStringIndex(lines[0], -1)
	rows := make(map[int]row)
	for _, line := range lines[1:] {
		if line == "" {
			break
		}
		r, runes := make(row), []rune(line)
		for i, c := range columns {
			end := c[1]
			if i == len(columns)-1 {
				end = len(runes)
			}
			r[strings.TrimSpace(lines[0][c[0]:c[1]])] = strings.TrimSpace(string(runes[min(c[0], len(runes)):min(end, len(runes))]))
		}
		n, err := strconv.Atoi(r["LINE"])
		if err != nil {
			t.Fatalf("row %q: %v", line, err)
		}
		rows[n] = r
	}
	return rows
}

// sox runs sox, which describes sounds on either output.
func sox(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx := waittest.Context(t)
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("%s is not installed; install it with: make deps-speech", name)
	}
	if err != nil {
		t.Fatalf("%s %v: %v: %s; want no error", name, args, err, out)
	}
	return string(out)
}

var amplitude = regexp.MustCompile(`RMS\s+amplitude:\s+([0-9.]+)`)

// listen returns the length of a sound, and fails the test when it is silent.
func listen(t *testing.T, file string) (seconds float64) {
	t.Helper()
	m := amplitude.FindStringSubmatch(sox(t, "sox", file, "-n", "stat"))
	if m == nil {
		t.Fatalf("sox does not print the amplitude of %s", file)
	}
	if loud, err := strconv.ParseFloat(m[1], 64); err != nil || loud < 0.001 {
		t.Errorf("%s is silent: RMS amplitude %s", file, m[1])
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(sox(t, "soxi", "-D", file)), 64)
	if err != nil {
		t.Fatal(err)
	}
	return seconds
}

// TestSpeech speaks the phrases that come with the program and listens to every file.
func TestSpeech(t *testing.T) {
	text, err := os.ReadFile("phrases.txt")
	if err != nil {
		t.Fatal(err)
	}
	code, rows, wav := speakText(t, string(text))
	if code != 0 {
		t.Errorf("exit status %d", code)
	}
	phrases, err := readPhrases(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(wav, "*.wav"))
	if err != nil || len(files) != len(phrases) || len(rows) != len(phrases) {
		t.Fatalf("%d phrases gave %d files and %d rows (%v)", len(phrases), len(files), len(rows), err)
	}
	nodes := map[string]string{"de": "speech-de", "fr": "speech-de", "en": "speech-en", "es": "speech-en", "it": "speech-misc", "pt": "speech-misc", "zh": "speech-misc"}
	length := make(map[string]float64)
	for _, p := range phrases {
		r := rows[p.line]
		if r["STATE"] != "succeeded" || r["ATTEMPT"] != "1" {
			t.Errorf("line %d: %v", p.line, r)
		}
		if want := nodes[p.language[:2]]; r["NODE"] != want {
			t.Errorf("line %d (%s) was spoken by %s, expected %s", p.line, p.language, r["NODE"], want)
		}
		file := filepath.Join(wav, "0"+strconv.Itoa(100 + p.line)[1:]+"-"+p.language+".wav")
		length[p.text] = listen(t, file)
		if said, err := strconv.ParseFloat(r["SECONDS"], 64); err != nil || said < length[p.text]-0.02 || said > length[p.text]+0.02 {
			t.Errorf("line %d: the table has %s seconds, soxi %.2f", p.line, r["SECONDS"], length[p.text])
		}
	}
	// The three German lines, by length.
	var german []phrase
	for _, p := range phrases {
		if strings.HasPrefix(p.language, "de") {
			german = append(german, p)
		}
	}
	for _, a := range german {
		for _, b := range german {
			if len(a.text) > len(b.text) && length[a.text] <= length[b.text] {
				t.Errorf("%q takes %.2f s, %q takes %.2f s", a.text, length[a.text], b.text, length[b.text])
			}
		}
	}
}

// TestRefusedLines speaks a file in which some lines cannot be spoken.
func TestRefusedLines(t *testing.T) {
	text, err := os.ReadFile("phrases-refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	code, rows, wav := speakText(t, string(text))
	if code != 1 {
		t.Errorf("exit status %d, expected 1", code)
	}
	for line, want := range map[int]struct{ state, note string }{
		2: {"succeeded", ""},
		3: {"no_matching_node", "nodes ruled out: 3 by target_language"},
		4: {"bad_line", `line 4 names no language, expected "de: Guten Tag"`},
		5: {"succeeded", ""},
	} {
		if r := rows[line]; r["STATE"] != want.state || r["NOTE"] != want.note {
			t.Errorf("line %d: %v, expected state %s and note %q", line, r, want.state, want.note)
		}
	}
	files, err := filepath.Glob(filepath.Join(wav, "*.wav"))
	if err != nil || len(files) != 2 {
		t.Errorf("two lines can be spoken, there are %v (%v)", files, err)
	}
}

// TestManyLinesOfOneLanguage has more lines than their node has slots, a text that looks like an
// option, and a text whose sound is over the node's limit.
func TestManyLinesOfOneLanguage(t *testing.T) {
	text := strings.Repeat("de: Noch eine Zeile, die auf einen freien Platz wartet.\n", 20) +
		"de: --version\n" +
		"de: " + strings.Repeat("Dieser Satz nimmt kein Ende und hört nicht auf. ", 150) + "\n"
	code, rows, wav := speakText(t, text, "-allow-failures")
	if code != 0 {
		t.Errorf("exit status %d with -allow-failures", code)
	}
	waited := 0
	for line := 1; line <= 21; line++ {
		r := rows[line]
		if r["STATE"] != "succeeded" || r["NODE"] != "speech-de" {
			t.Errorf("line %d: %v", line, r)
		}
		if r["POSITION"] != "-" {
			waited++
		}
	}
	if waited == 0 {
		t.Error("no line waited for its node")
	}
	listen(t, filepath.Join(wav, "021-de.wav"))
	if r := rows[22]; r["STATE"] != "failed" || !strings.Contains(r["NOTE"], "result_too_large") {
		t.Errorf("line 22: %v", r)
	}
}

func TestWithoutSynthesizer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"-dir", t.TempDir(), "-"}, strings.NewReader("de: x"), &bytes.Buffer{}, &stderr)
	if want := "speech: espeak-ng is not installed; install it with: make deps-speech\n"; code != 1 || stderr.String() != want {
		t.Errorf("exit status %d, %q", code, &stderr)
	}
}

func TestBadCommandLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-speed"}, {"a", "b"}} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &bytes.Buffer{}, &stderr); code != 2 || stderr.Len() == 0 {
			t.Errorf("%v: exit status %d, %q", args, code, &stderr)
		}
	}
	for _, args := range [][]string{{"-dir", t.TempDir(), "nosuchfile.txt"}, {"-dir", t.TempDir(), "-"}} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader("# nothing\n"), &bytes.Buffer{}, &stderr); code != 1 || stderr.Len() == 0 {
			t.Errorf("%v: exit status %d, %q", args, code, &stderr)
		}
	}
}
