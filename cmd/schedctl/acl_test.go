package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestACLPrints(t *testing.T) {
	t.Parallel()
	file := secretFile(t, "hidden\n")
	got := command(
		t, "", "acl", "--role", "agent", "--node", "gpu-1", "--node", "gpu-2", "--password-file", file, "--cells", "4",
		"--key-prefix", "fleet",
	).expect(t, exitOK)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if len(lines) != 2 || strings.Contains(got.out, "hidden") {
		t.Fatal(got.out)
	}
	for i, node := range []string{"gpu-1", "gpu-2"} {
		for _, part := range []string{
			`^ACL SETUSER agent-` + node + ` on resetpass #[0-9a-f]{64} resetkeys resetchannels -@all `,
			` \+evalsha\|[0-9a-f]{40} `, ` ~fleet:nodes:\{\w+\}:` + node + ` `, ` &fleet:events:node_update:\{\w+\}$`,
		} {
			if !regexp.MustCompile(part).MatchString(lines[i]) {
				t.Errorf("no %s in %s", part, lines[i])
			}
		}
		for _, not := range []string{"+eval ", "+script", "+@", "~*", "&*"} {
			if strings.Contains(lines[i], not) {
				t.Errorf("%s in %s", not, lines[i])
			}
		}
	}
	got = command(
		t, "", "acl", "--role", "replica", "--format", "aclfile", "--password-file", file, "--user", "sched",
	).expect(t, exitOK)
	if !strings.HasPrefix(got.out, "user sched on resetpass #") {
		t.Error(got.out)
	}
	got = command(t, "", "acl", "--role", "operator", "--add", "--format", "json").expect(t, exitOK)
	var said struct {
		Users []struct {
			Name  string
			Rules []string
		}
	}
	if err := json.Unmarshal([]byte(got.out), &said); err != nil || len(said.Users) != 1 ||
		said.Users[0].Name != "operator" || said.Users[0].Rules[1] != "+@read" {
		t.Errorf(
			`%v: %s; want no error, len(said.Users) == 1, said.Users[0].Name == "operator", said.Users[0].Rules[1] == "+@read"`,
			err, got.out,
		)
	}
	for _, wrong := range []struct{ args, want string }{
		{"--role god", "--role"},
		{"--role lock --namespace n", "--namespace is for --role registry"},
		{"--role registry --namespace a:b", "is no name"},
		{"--role lock --list vip", "--list is for --role list-reader"},
		{
			"--role list-reader --list vip_2",
			"--list is \"vip_2\", expected 1 to 64 characters of A-Z a-z 0-9 . -, beginning with a letter or digit",
		},
		{"--role replica --node n", "--node is for --role agent"},
		{"--role agent --node n --node m --user u", "--user names one user"},
		{"--role agent --format aclfile", "--format aclfile needs --password-file"},
		{"--role agent --cells 65", "--cells is 65, expected 1 to 64"},
		{"--role agent --node a*", "is no name"},
		{"--role agent --key-prefix *", "is no name"},
	} {
		command(t, "", append([]string{"acl"}, strings.Fields(wrong.args)...)...).expect(t, exitUsage, wrong.want)
	}
}

// TestACLRules: the rights of each role, one rule a line. Operators set them before an upgrade. The
// hashes of scripts are left out, because they change with each edit.
func TestACLRules(t *testing.T) {
	t.Parallel()
	hash := regexp.MustCompile(`\|[0-9a-f]{40}`)
	var out strings.Builder
	for _, args := range []string{
		"--role agent", "--role agent --node gpu-1", "--role agent --node gpu-1 --cells 3 --cluster --key-prefix fleet",
		"--role replica", "--role replica --cells 3 --cluster --key-prefix fleet", "--role operator", "--role operator --add",
		"--role importer",
		"--role lock", "--role lock --lock-key-prefix app",
		"--role registry", "--role registry --cluster --namespace shop",
		"--role list-reader", "--role list-reader --list vip --list deny --cluster --key-prefix fleet",
		"--role doctor", "--role doctor --cells 3 --cluster --key-prefix fleet",
	} {
		printed := command(t, "", append([]string{"acl"}, strings.Fields(args)...)...).expect(t, exitOK).out
		rules := strings.ReplaceAll(hash.ReplaceAllString(printed, "|<hash>"), " ", "\n  ")
		fmt.Fprintf(&out, "# schedctl acl %s\n%s\n", args, rules)
	}
	golden.Check(t, "acl.txt", out.String())
}

func TestACLApply(t *testing.T) {
	t.Parallel()
	plain := redistest.New(t)
	file := secretFile(t, "secret")
	got := command(
		t, "", "acl", "--role", "agent", "--node", "n1", "--password-file", file, "--apply", "--redis-url", plain.AdminURL(),
	).expect(t, exitOK, "no ACL file")
	if !strings.Contains(got.out, plain.Addrs()[0]+": 1 user set") {
		t.Error(got.out)
	}
	c, err := redisclient.Agent(redisclient.Config{
		URL: plain.AdminURL(), Access: redisclient.Access{Username: "agent-n1", PasswordFile: file},
	})
	must(t, err)
	c.Close()
	if strings.Contains(got.out, "no password") {
		t.Error(got.out)
	}
	command(t, "", "acl", "--role", "agent", "--node", "n1", "--node", "n2", "--apply", "--redis-url", plain.AdminURL()).
		expect(t, exitOK, "2 users set", "agent-n2 has no password, so no client can connect as it yet")
	// An agent does not have that right.
	command(
		t, "", "acl", "--role", "agent", "--apply", "--redis-url", plain.AdminURL(), "--redis-username", "agent-n1",
		"--redis-password-file", file,
	).
		expect(t, exitFailure, "NOPERM")
}
