package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
)

const (
	// service is the name that the nodes offer.
	service = "tts"
	// maxLineBytes is the longest line.
	maxLineBytes = 64 << 10
	// maxLines bounds the input: every result stays in Redis while the program runs.
	maxLines = 1000
)

// phrase is one line of the input to be spoken.
type phrase struct {
	line     int // from 1
	language string
	text     string
	// err tells why the line cannot be submitted; the other fields may then be empty.
	err error
}

var (
	errLineTooLong = fmt.Errorf("is longer than %d bytes", maxLineBytes)
	errNotUTF8     = errors.New("is not UTF-8 text")
	errNoLanguage  = errors.New(`names no language, expected "de: Guten Tag"`)
	errNoText      = errors.New("has no text after its language")
)

// readPhrases reads all lines except blank ones and comments. Bad lines are among the phrases, with
// their err. The error is for an input that cannot be read or is too long.
func readPhrases(r io.Reader) ([]phrase, error) {
	in := bufio.NewReaderSize(r, maxLineBytes)
	var phrases []phrase
	for n := 1; ; n++ {
		text, tooLong, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return phrases, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read line %d: %w", n, err)
		}
		if n == 1 {
			text = strings.TrimPrefix(text, "\ufeff")
		}
		p, ok := parseLine(text)
		if !ok {
			continue
		}
		if tooLong {
			p.err = errLineTooLong
		}
		if p.line = n; len(phrases) == maxLines {
			return nil, fmt.Errorf("line %d: the input has more than %d lines to speak", n, maxLines)
		}
		phrases = append(phrases, p)
	}
}

// readLine returns a line without its end, or the beginning of one that is too long. io.EOF comes
// alone.
func readLine(in *bufio.Reader) (text string, tooLong bool, err error) {
	part, more, err := in.ReadLine()
	text = string(part)
	for more && err == nil {
		tooLong = true
		_, more, err = in.ReadLine()
	}
	if errors.Is(err, io.EOF) && tooLong {
		err = nil
	}
	return text, tooLong, err
}

// parseLine returns false for blank lines and comments.
func parseLine(text string) (phrase, bool) {
	text = strings.TrimSpace(text)
	if text == "" || text[0] == '#' {
		return phrase{}, false
	}
	if !utf8.ValidString(text) {
		return phrase{err: errNotUTF8}, true
	}
	tag, spoken, ok := strings.Cut(text, ":")
	if !ok {
		return phrase{err: errNoLanguage}, true
	}
	p := phrase{language: strings.TrimSpace(tag), text: strings.TrimSpace(spoken)}
	job, err := p.job()
	if err == nil {
		err = job.Validate("job")
	}
	switch {
	case p.language == "" || freeslot.CodeOf(err) == freeslot.CodeInvalidArgument:
		// "Note that: this" has a colon too, but no language before it.
		return phrase{err: fmt.Errorf("begins with %.40q, which is no language; %w", p.language, errNoLanguage)}, true
	case err != nil:
		p.err = err
	case p.text == "":
		p.err = errNoText
	}
	return p, true
}

// request is the payload of a job.
type request struct {
	Text string `json:"text"`
}

func (p *phrase) job() (freeslot.Job, error) {
	payload, err := json.Marshal(request{Text: p.text})
	return freeslot.Job{
		Service: service, Payload: payload,
		Requirement: freeslot.Requirement{TargetLanguage: p.language},
	}, err
}
