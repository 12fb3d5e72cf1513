package nodeagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/worker"
)

const (
	// The marks around a placeholder. No shell, awk, jq, curl or JSON uses ${{.
	openMark, closeMark = "${{", "}}"
	// maxArgvBytes bounds the values of a job in the arguments: the kernel limits all variables and
	// arguments together.
	maxArgvBytes = 64 << 10
)

// jobFields holds the placeholders in addition to the payload's. In capitals, with FREESLOT_ before
// them, they are variables too.
var jobFields = map[string]func(*worker.Job) string{
	"job_id":          func(j *worker.Job) string { return j.ID },
	"attempt":         func(j *worker.Job) string { return strconv.Itoa(j.Attempt) },
	"tenant":          func(j *worker.Job) string { return j.Tenant },
	"service":         func(j *worker.Job) string { return j.Service },
	"slots":           func(j *worker.Job) string { return strconv.Itoa(j.Slots) },
	"pool":            func(j *worker.Job) string { return j.Requirement.Pool },
	"source_language": func(j *worker.Job) string { return j.Requirement.SourceLanguage },
	"target_language": func(j *worker.Job) string { return j.Requirement.TargetLanguage },
}

const placeholderNames = "attempt, job_id, payload, payload.FIELD, pool, service, slots, source_language, " +
	"target_language or tenant"

var payloadPath = regexp.MustCompile(`^payload(\.[A-Za-z0-9_-]{1,64})*$`)

// argument is one argument: literals and placeholders by turns. It begins and ends with a literal,
// which may be empty.
type argument struct {
	parts []string
	// operand is true right after an argument "--", after which programs take no more options.
	operand bool
}

// template holds the arguments of a command.
type template struct {
	args []argument
	// payload is true if a placeholder needs the payload.
	payload bool
}

// parseArgv returns the template of argv[1:]. Each error continues a sentence that begins with
// the key of its argument.
func parseArgv(argv []string) (*template, map[int]error) {
	t, problems := &template{}, make(map[int]error)
	// interpreter is true after an interpreter, passed after its script file or "--". own is true
	// when that "--" came after a program's text: then all further arguments belong to the text.
	operand, interpreter, passed, own := false, false, false, false
	for i, text := range argv {
		parts, err := parseArgument(text)
		switch {
		case err != nil:
		case i == 0 && len(parts) > 1:
			err = errors.New("has a placeholder, expected a program that no job can choose")
		case !operand && len(parts) > 1 && parts[0] != "" && strings.Trim(parts[0], "-") == "":
			err = errors.New("has a placeholder right behind \"-\", expected an option that no job can choose")
		case interpreter && !passed && len(parts) > 1:
			err = errors.New(`has a placeholder behind an interpreter, which could run the job's value, ` +
				`expected it behind a fixed script file or "--"`)
		}
		if err != nil {
			problems[i] = err
		}
		switch {
		// Also after env, sudo and docker run, and behind a script that may run its arguments.
		case (!interpreter || passed && !own) && interpreters.MatchString(filepath.Base(text)):
			interpreter, passed = true, false
		case !interpreter:
		case !passed && !isOption(argv[i-1]) && !isOption(text):
			passed, own = true, text == "--" && !interpreters.MatchString(filepath.Base(argv[i-1]))
		}
		if i > 0 {
			t.args = append(t.args, argument{parts, operand})
		}
		if text == "--" {
			operand = true
		} else if len(parts) == 1 && !own {
			operand = false // it may be a program, with options of its own
		}
		for j := 1; j < len(parts); j += 2 {
			t.payload = t.payload || strings.HasPrefix(parts[j], "payload")
		}
	}
	return t, problems
}

// parseArgument splits an argument. $${{ stands for a literal ${{.
func parseArgument(text string) ([]string, error) {
	parts, literal := []string(nil), ""
	for {
		before, after, found := strings.Cut(text, openMark)
		if !found {
			return append(parts, literal+text), nil
		}
		if rest, escaped := strings.CutSuffix(before, "$"); escaped {
			literal, text = literal+rest+openMark, after
			continue
		}
		name, rest, closed := strings.Cut(after, closeMark)
		if !closed {
			return nil, fmt.Errorf(
				"has %s without %s, expected a placeholder, or $%s for the characters themselves", openMark, closeMark, openMark,
			)
		}
		name = strings.TrimSpace(name)
		if _, known := jobFields[name]; !known && !payloadPath.MatchString(name) {
			return nil, fmt.Errorf(
				"has ${{%s}}, expected %s, or $%s for the characters themselves", name, placeholderNames, openMark,
			)
		}
		parts, literal, text = append(parts, literal+before, name), "", rest
	}
}

var interpreters = regexp.MustCompile(`^((ba|da|a|k|z|fi)?sh|python|perl|ruby|lua|node|nodejs|php)[0-9.]*$`)

// isOption reports whether an interpreter may take the argument as an option. The next one may then
// be its value, such as a program's text.
func isOption(text string) bool {
	return text != "--" && (strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+"))
}

// validateArgv records invalid placeholders.
func validateArgv(at string, argv []string, p *config.Problems) {
	if len(argv) == 0 {
		return
	}
	_, problems := parseArgv(argv)
	for i := range argv {
		p.Add(at+"["+strconv.Itoa(i)+"]", problems[i])
	}
}

// expand makes the arguments for one job. Whatever the values, each argument stays one argument.
func (t *template) expand(job *worker.Job) ([]string, error) {
	var payload any
	if t.payload {
		if err := unmarshalNumbers(job.Payload, &payload); err != nil {
			return nil, jobError(CodeBadPayload, "the payload is not JSON")
		}
	}
	args, total := make([]string, 0, len(t.args)), 0
	for _, a := range t.args {
		text, err := a.expand(job, payload)
		if err != nil {
			return nil, err
		}
		if len(a.parts) > 1 {
			total += len(text)
		}
		if total > maxArgvBytes {
			return nil, jobError(CodeBadPayload, fmt.Sprintf("the arguments have more than %d bytes", maxArgvBytes))
		}
		args = append(args, text)
	}
	return args, nil
}

func (a *argument) expand(job *worker.Job, payload any) (string, error) {
	if len(a.parts) == 1 {
		return a.parts[0], nil
	}
	var b strings.Builder
	for i, part := range a.parts {
		if i%2 == 0 {
			b.WriteString(part)
			continue
		}
		value, err := fieldOf(part, job, payload)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
	}
	text := b.String()
	if a.parts[0] == "" && strings.HasPrefix(text, "-") && !a.operand {
		return "", jobError(
			CodeBadPayload, fmt.Sprintf("%s begins with \"-\", which the command would take for an option", a.parts[1]),
		)
	}
	return text, nil
}

// fieldOf returns the value of a placeholder.
func fieldOf(name string, job *worker.Job, payload any) (string, error) {
	value, missing := "", false
	if field, ok := jobFields[name]; ok {
		value = field(job)
		missing = value == ""
	} else {
		for _, key := range strings.Split(name, ".")[1:] {
			object, _ := payload.(map[string]any)
			payload = object[key]
		}
		switch v := payload.(type) {
		case nil:
			missing = true
		case string:
			value = v
		case bool:
			value = strconv.FormatBool(v)
		case json.Number:
			value = v.String()
		default:
			return "", jobError(CodeBadPayload, name+" is not a text, number or boolean, as an argument must be")
		}
	}
	switch {
	case missing:
		return "", jobError(CodeBadPayload, "the job has no "+name+", which the command needs")
	case len(value) > maxFieldBytes:
		return "", jobError(
			CodeBadPayload, fmt.Sprintf("%s has more than %d bytes, the most that an argument can take", name, maxFieldBytes),
		)
	case strings.ContainsRune(value, 0):
		return "", jobError(CodeBadPayload, name+" has a zero byte, which no argument can have")
	}
	return value, nil
}

// unmarshalNumbers decodes JSON and keeps numbers as they are written.
func unmarshalNumbers(data json.RawMessage, v any) error {
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	return decoder.Decode(v)
}
