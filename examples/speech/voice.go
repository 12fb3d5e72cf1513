package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/worker"
)

const (
	synthesizer = "espeak-ng"
	// speakLimit bounds one run of the synthesizer.
	speakLimit = 60 * time.Second
	// maxResultBytes is about 140 seconds of speech; a longer line is refused as too large.
	maxResultBytes = 8 << 20
	slotsPerNode   = 2
)

var errNoSynthesizer = errors.New("espeak-ng is not installed; install it with: make deps-speech")

// voices maps the languages of one node, as lower-case tags, to the voices that read them.
type voices map[string]string

// fleet holds the languages of each node.
var fleet = map[string]voices{
	"speech-de":   {"de": "de", "fr": "fr-fr"},
	"speech-en":   {"en": "en-gb", "en-us": "en-us", "es": "es"},
	"speech-misc": {"it": "it", "pt": "pt", "pt-br": "pt-br", "cmn": "cmn", "zh": "cmn"},
}

// of finds the voice for a tag, or for the tag without its last parts. freeslot chooses a node in
// the same way.
func (v voices) of(tag string) (string, bool) {
	for tag = strings.ToLower(strings.ReplaceAll(tag, "_", "-")); tag != ""; {
		if voice, ok := v[tag]; ok {
			return voice, true
		}
		tag = tag[:max(strings.LastIndexByte(tag, '-'), 0)]
	}
	return "", false
}

// speech is the result of a job. WAV is base64 in JSON.
type speech struct {
	WAV     []byte  `json:"wav"`
	Seconds float64 `json:"seconds"`
	Voice   string  `json:"voice"`
}

// node is a worker that speaks.
type node struct {
	voices  voices
	program string
	folder  string // for the files that the synthesizer writes
}

// newWorker makes the worker of one node of the fleet. It is not started.
func newWorker(id, redisURL, program, folder string) (*worker.Worker, error) {
	v := fleet[id]
	w, err := worker.New(worker.Config{
		RedisURL: redisURL,
		Node: freeslot.Node{
			ID: id, MaxConcurrency: slotsPerNode,
			Languages: freeslot.Languages{TTS: slices.Sorted(maps.Keys(v))},
		},
		MaxResultBytes: maxResultBytes,
	})
	if err != nil {
		return nil, err
	}
	w.Handle(service, (&node{voices: v, program: program, folder: folder}).speak)
	return w, nil
}

// speak is the handler.
func (n *node) speak(ctx context.Context, job *worker.Job) (any, error) {
	var req request
	if err := json.Unmarshal(job.Payload, &req); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	voice, ok := n.voices.of(job.Requirement.TargetLanguage)
	if !ok {
		return nil, fmt.Errorf("this node has no voice for %q", job.Requirement.TargetLanguage)
	}
	_ = job.Progress(map[string]string{"speaks": voice}) // for everyone who watches the job
	file := filepath.Join(n.folder, job.ID+".wav")
	defer os.Remove(file) //nolint:errcheck // it may not have been written
	if err := synthesize(ctx, n.program, voice, req.Text, file); err != nil {
		return nil, err
	}
	wav, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	seconds, err := wavSeconds(wav)
	if err != nil {
		return nil, fmt.Errorf("%s wrote a file that is no WAV: %w", synthesizer, err)
	}
	return speech{WAV: wav, Seconds: seconds, Voice: voice}, nil
}

// synthesize writes the spoken text to file. The text goes by standard input: an argument could
// look like an option, and every user of the machine could read it.
func synthesize(ctx context.Context, program, voice, text, file string) error {
	ctx, cancel := context.WithTimeout(ctx, speakLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-b", "1", "-v", voice, "--stdin", "-w", file) // -b 1: UTF-8
	cmd.Stdin = strings.NewReader(text)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", synthesizer, errors.Join(ctx.Err(), err), strings.TrimSpace(stderr.String()))
	}
	return nil
}

// findSynthesizer returns the path of espeak-ng.
func findSynthesizer() (string, error) {
	path, err := exec.LookPath(synthesizer)
	if err != nil {
		return "", errNoSynthesizer
	}
	return path, nil
}
