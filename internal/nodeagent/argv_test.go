package nodeagent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/worker"
)

func argvJob(payload string) *worker.Job {
	job := testJob()
	job.Payload = json.RawMessage(payload)
	return job
}

func expand(t *testing.T, job *worker.Job, argv ...string) ([]string, error) {
	t.Helper()
	parsed, problems := parseArgv(append([]string{"program"}, argv...))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return parsed.expand(job)
}

func TestArgvExpands(t *testing.T) {
	t.Parallel()
	payload := `{"text":"a b\n'\"; $(x) * ${{job_id}}","n":1.50,"big":12345678901234567890,"yes":true,"dash":"-rf","under":{"a-b":{"c":"deep"}},"empty":""}`
	for text, want := range map[string]string{
		"${{payload.text}}":                        "a b\n'\"; $(x) * ${{job_id}}",
		"${{ payload.n }}":                         "1.50",
		"${{payload.big}}":                         "12345678901234567890",
		"${{payload.yes}}":                         "true",
		"${{payload.under.a-b.c}}":                 "deep",
		"${{payload.empty}}":                       "",
		"--x=${{payload.dash}}":                    "--x=-rf",
		"${{job_id}}.${{attempt}}":                 testJob().ID + ".2",
		"${{tenant}}/${{service}}/${{slots}}":      "acme/tts/1",
		"<${{target_language}}>":                   "<de-AT>",
		"$${{payload.text}}":                       "${{payload.text}}",
		"$${{x ${{attempt}} }}":                    "${{x 2 }}",
		"{print $1}":                               "{print $1}",
		`{"a":{"b":{}}}`:                           `{"a":{"b":{}}}`,
		"${HOME} $$ {{.ID}} %{http_code} {job_id}": "${HOME} $$ {{.ID}} %{http_code} {job_id}",
		"": "",
	} {
		got, err := expand(t, argvJob(payload), text)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, %v, expected %q", text, got, err, want)
		}
	}
	got, err := expand(t, argvJob(payload), "-a", "--", "${{payload.dash}}", "x${{payload.dash}}")
	if diff := cmp.Diff([]string{"-a", "--", "-rf", "x-rf"}, got); err != nil || diff != "" {
		t.Errorf(`%v %s; want no error, diff == ""`, err, diff)
	}
	// The "--" of kubectl exec or sudo ends their options, but not those of the program after it.
	_, err = expand(t, argvJob(payload), "exec", "pod", "--", "tool", "${{payload.dash}}")
	wantCode(t, err, CodeBadPayload, `payload.dash begins with "-"`)
	got, err = expand(t, argvJob(payload), "exec", "pod", "--", "tool", "--", "${{job_id}}", "${{payload.dash}}")
	if err != nil || got[6] != "-rf" {
		t.Errorf(`%q %v; want no error, got[6] == "-rf"`, got, err)
	}
	parsed, _ := parseArgv([]string{"sh", "-c", "tool", "--", "fixed", "${{payload.dash}}"})
	if got, err := parsed.expand(argvJob(payload)); err != nil || got[4] != "-rf" {
		t.Errorf("behind a shell's text all are its own: %q %v", got, err)
	}
	if got, err := expand(t, argvJob(`"the whole"`), "${{payload}}"); err != nil || got[0] != "the whole" {
		t.Errorf(`%q %v; want no error, got[0] == "the whole"`, got, err)
	}
	if got, err := expand(t, argvJob(`not JSON`), "{}", "${{attempt}}"); err != nil || got[1] != "2" {
		t.Errorf("a payload that no argument needs: %q %v", got, err)
	}
}

func TestArgvRefusesJobs(t *testing.T) {
	t.Parallel()
	for payload, test := range map[string]struct{ text, says string }{
		`{}`:                 {"${{payload.text}}", "the job has no payload.text, which the command needs"},
		`{"text":null}`:      {"${{payload.text}}", "the job has no payload.text"},
		`{"text":"x"}`:       {"${{payload.text.more}}", "the job has no payload.text.more"},
		``:                   {"${{payload}}", "the job has no payload,"},
		`[1]`:                {"${{payload}}", "payload is not a text, number or boolean"},
		`{"text":{}}`:        {"${{payload.text}}", "payload.text is not a text, number or boolean"},
		`{"a":"-rf"}`:        {"${{payload.a}}", `payload.a begins with "-"`},
		`{"a":-5}`:           {"${{payload.a}}", `payload.a begins with "-"`},
		`{"a":"","b":"--x"}`: {"${{payload.a}}${{payload.b}}", `begins with "-"`},
		`{"a":"x\u0000y"}`:   {"y${{payload.a}}", "payload.a has a zero byte"},
		`{"TEXT":"x"}`:       {"${{payload.text}}", "the job has no payload.text"},
		`{"a":1`:             {"${{payload.a}}", "the payload is not JSON"},
		`{"l":"` + strings.Repeat("x", maxFieldBytes+1) + `"}`: {"${{payload.l}}", "more than 8192 bytes"},
		`{"m":"` + strings.Repeat("x", maxFieldBytes) + `"}`:   {strings.Repeat("${{payload.m}}", 9), "the arguments have more than 65536 bytes"},
		`{"any":1}`: {"${{source_language}}", "the job has no source_language"},
	} {
		_, err := expand(t, argvJob(payload), "x", test.text)
		wantCode(t, err, CodeBadPayload, test.says)
		wantRetry(t, err, false)
	}
}

func TestArgvRefusesConfigurations(t *testing.T) {
	t.Parallel()
	const service = "services: [{name: a, command: {argv: %s}}]"
	for argv, want := range map[string]string{
		`[cat, x, "${{payoad.text}}"]`:                              "argv[2] has ${{payoad.text}}, expected " + placeholderNames + ", or $${{ for the characters themselves",
		`[cat, "${{payload.}}"]`:                                    "argv[1] has ${{payload.}}, expected",
		`[cat, "${{PAYLOAD}}"]`:                                     "argv[1] has ${{PAYLOAD}}, expected",
		`[cat, "${{}}"]`:                                            "argv[1] has ${{}}, expected",
		`[cat, "a ${{job_id"]`:                                      "argv[1] has ${{ without }}, expected",
		`[sh, "-ec", "echo ${{payload.text}}"]`:                     "argv[2] has a placeholder behind an interpreter",
		`[python3, "-c", "print('${{payload.text}}')"]`:             "argv[2] has a placeholder behind an interpreter",
		`[/usr/bin/perl, "-ne", "${{payload.text}}"]`:               "argv[2] has a placeholder behind an interpreter",
		`[env, "A=b", sh, "-c", "echo ${{payload.text}}"]`:          "argv[4] has a placeholder behind an interpreter",
		`[env, "--", /bin/bash, "-lc", "echo ${{payload.text}}"]`:   "argv[4] has a placeholder behind an interpreter",
		`[node, "--eval", "${{payload.text}}"]`:                     "argv[2] has a placeholder behind an interpreter",
		`[perl, "-e", "1", "-e", "${{payload.text}}"]`:              "argv[4] has a placeholder behind an interpreter",
		`[ruby, "-r", "json", "-e", "${{payload.text}}"]`:           "argv[4] has a placeholder behind an interpreter",
		`[python3, "${{payload.file}}"]`:                            "argv[1] has a placeholder behind an interpreter",
		`[python3, "-u", "${{payload.file}}"]`:                      "argv[2] has a placeholder behind an interpreter",
		`[python3.12, "-m", "tool", "${{payload.text}}"]`:           "argv[3] has a placeholder behind an interpreter",
		`[sh, "-c", "cat $1", "${{payload.text}}"]`:                 "argv[3] has a placeholder behind an interpreter",
		`[bash, /opt/wrap.sh, sh, "-c", "echo ${{payload.text}}"]`:  "argv[4] has a placeholder behind an interpreter",
		`[bash, "-c", "--", "${{payload.text}}"]`:                   "argv[3] has a placeholder behind an interpreter",
		`[bash, "+x", "-c", "${{payload.text}}"]`:                   "argv[3] has a placeholder behind an interpreter",
		`[cat, "--${{payload.text}}"]`:                              `argv[1] has a placeholder right behind "-"`,
		`[cat, "-${{payload.text}}=x"]`:                             `argv[1] has a placeholder right behind "-"`,
		`[sh, "-c", "cat $1", "--", "${{payload.text}}", "${{x}}"]`: "argv[5] has ${{x}}, expected",
	} {
		_, err := load(t, fmt.Sprintf(service, argv), "FREESLOT_NODE__ID=n1")
		if err == nil || !strings.HasPrefix(err.Error(), "services[0].command."+want) && !strings.Contains(err.Error(), "cannot be run") {
			t.Errorf(`%s: %v; want an error, strings.HasPrefix(err.Error(), "services[0].command."+want) or strings.Contains(err.Error(), "cannot be run")`, argv, err)
		}
	}
	if _, problems := parseArgv([]string{"${{payload.program}}"}); problems[0] == nil || !strings.Contains(problems[0].Error(), "expected a program that no job can choose") {
		t.Errorf(`%v; want problems[0] != nil, strings.Contains(problems[0].Error(), "expected a program that no job can choose")`, problems)
	}
	for _, fine := range []string{
		`[sh, "-c", "echo $1 $${{x}}", "--", "${{payload.text}}"]`, `[awk, "-c", "{print $1}"]`, `[cat, "--", "-${{payload.text}}"]`,
		`[sh, "-c", "exec tool \"$@\"", sh, "-c", "${{payload.text}}"]`, `[sh, "--", "-c", "${{payload.text}}"]`,
		`[env, "A=b", sh, script.sh, "-x", "${{payload.text}}"]`, `[python3, "-u", "--", script.py, "--text=${{payload.text}}"]`, `[sh, "-c", "cat $1", name, "${{payload.text}}"]`,
	} {
		if _, err := load(t, fmt.Sprintf(service, fine), "FREESLOT_NODE__ID=n1"); err != nil {
			t.Errorf("%s: %v; want no error", fine, err)
		}
	}
}

func TestPlaceholderNames(t *testing.T) {
	t.Parallel()
	names := append([]string{"payload", "payload.FIELD"}, slices.Collect(maps.Keys(jobFields))...)
	slices.Sort(names)
	last := len(names) - 1
	if got := strings.Join(names[:last], ", ") + " or " + names[last]; got != placeholderNames {
		t.Errorf("%s; want got == %v", got, placeholderNames)
	}
}

// For every payload there are as many arguments as configured, literals stay, and no job can make
// an argument an option.
func TestArgvInjection(t *testing.T) {
	t.Parallel()
	argv := []string{"-a", "${{payload.x}}", "--o=${{payload.x}}", "z", "--", "${{payload.x}}"}
	rapid.Check(t, func(r *rapid.T) {
		value := rapid.OneOf(rapid.String(), rapid.StringMatching(`[-"' $;|&\n{}\x00]*`)).Draw(r, "value")
		raw, err := json.Marshal(map[string]string{"x": value})
		if err != nil {
			r.Fatal(err)
		}
		got, err := expand(t, argvJob(string(raw)), argv...)
		refused := strings.HasPrefix(value, "-") || strings.ContainsRune(value, 0)
		value = strings.ToValidUTF8(value, "\ufffd") // as JSON has it
		want := []string{"-a", value, "--o=" + value, "z", "--", value}
		if refused != (err != nil) || err == nil && cmp.Diff(want, got) != "" {
			r.Fatalf(`%q, %v; want refused == (err != nil), an error or cmp.Diff(want, got) == ""`, got, err)
		}
	})
}

// As a process, too, an argument stays one argument.
func TestCommandArgv(t *testing.T) {
	t.Parallel()
	e := command(t, "", func(c *Command) {
		c.Argv = []string{"sh", "-c", `printf '%s\n' "$#" "$@"`, "--", "${{payload.text}}", "<${{payload.text}}>", "{literal}"}
		c.Output = OutputText
	})
	result, err := e.run(t.Context(), argvJob(`{"text":"-n \"a\" $(id)\nb"}`))
	if err != nil || text(t, result) != text(t, "3\n-n \"a\" $(id)\nb\n<-n \"a\" $(id)\nb>\n{literal}\n") {
		t.Errorf(`%v %v; want no error, text(t, result) == text(t, "3\n-n \"a\" $(id)\nb\n<-n \"a\" $(id)\nb>\n{literal}\n")`, result, err)
	}
	_, err = e.run(t.Context(), argvJob(`{}`))
	wantCode(t, err, CodeBadPayload, "payload.text")
}
