package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestReadPhrases(t *testing.T) {
	t.Parallel()
	input := "\ufeffde: Guten Tag\r\n" +
		"\n" +
		"# no line\n" +
		"  de-AT :  Servus: du \n" +
		"no language here\n" +
		"Note that: this is none\n" +
		": nothing before\n" +
		"fr:   \n" +
		"en: \xff\n" +
		"en: " + strings.Repeat("x", maxLineBytes) + "\n" +
		"# " + strings.Repeat("x", 3*maxLineBytes) + "\n" +
		"--stdin: option\n" +
		"it: senza fine"
	phrases, err := readPhrases(strings.NewReader(input))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range phrases {
		line := fmt.Sprintf("%d %s %s", p.line, p.language, p.text)
		if p.err != nil {
			line = fmt.Sprintf("%d %v", p.line, p.err)
		}
		got = append(got, line)
	}
	want := []string{
		"1 de Guten Tag",
		"4 de-AT Servus: du",
		`5 names no language, expected "de: Guten Tag"`,
		`6 begins with "Note that", which is no language; names no language, expected "de: Guten Tag"`,
		`7 begins with "", which is no language; names no language, expected "de: Guten Tag"`,
		"8 has no text after its language",
		"9 is not UTF-8 text",
		"10 is longer than 65536 bytes",
		`12 begins with "--stdin", which is no language; names no language, expected "de: Guten Tag"`,
		"13 it senza fine",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nexpected\n%s", g, w)
	}
}

func TestReadPhrasesIsBounded(t *testing.T) {
	t.Parallel()
	if _, err := readPhrases(strings.NewReader(strings.Repeat("de: x\n", maxLines))); err != nil {
		t.Error(err)
	}
	_, err := readPhrases(strings.NewReader(strings.Repeat("de: x\n\n", maxLines+1)))
	if err == nil || !strings.Contains(err.Error(), "line 2001: the input has more than 1000 lines") {
		t.Errorf("got %v", err)
	}
}

func TestVoice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ node, tag, voice string }{
		{"speech-de", "de", "de"},
		{"speech-de", "de-AT", "de"},
		{"speech-de", "FR_ca", "fr-fr"},
		{"speech-misc", "pt-BR", "pt-br"},
		{"speech-misc", "pt-AO", "pt"},
		{"speech-misc", "zh-Hant-TW", "cmn"},
		{"speech-en", "de", ""},
		{"speech-en", "", ""},
	} {
		if voice, ok := fleet[c.node].of(c.tag); voice != c.voice || ok != (c.voice != "") {
			t.Errorf("%s has the voice %q for %s, expected %q", c.node, voice, c.tag, c.voice)
		}
	}
}
