package nodeagent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe is a program that finds out, as another user, whether that user may run a program.
const probe = "/bin/sh"

// powers are the capabilities without which no command runs as another user, and ends when it must.
// A command never gets them.
var powers = []struct {
	capability uint
	name       string
}{
	{unix.CAP_SETUID, "CAP_SETUID"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_KILL, "CAP_KILL"},
}

// account is a user that commands run as.
type account struct {
	name, home string
	// credential is nil if the agent itself runs as the user.
	credential *syscall.Credential
	root       bool
}

// lookUp finds the user, if commands may run as it. The error continues a sentence that begins with
// the key.
func lookUp(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("is %q, which is no user of this machine", name)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("is %q, whose id %s is no number", name, u.Uid)
	}
	a := &account{name: u.Username, home: u.HomeDir, root: uid == 0}
	if int(uid) == os.Geteuid() {
		return a, nil
	}
	if missing := missingPowers(); len(missing) > 0 {
		return nil, fmt.Errorf(
			"is %q, and the agent, which runs as user %d, lacks %s, expected an agent that runs as %s, as root or with these",
			name, os.Geteuid(), strings.Join(missing, ", "), name,
		)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("is %q, whose groups cannot be read: %w", name, err)
	}
	a.credential = &syscall.Credential{Uid: uint32(uid)}
	for _, id := range append([]string{u.Gid}, groups...) {
		gid, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("is %q, whose group %s is no number", name, id)
		}
		a.credential.Groups = append(a.credential.Groups, uint32(gid))
	}
	a.credential.Gid = a.credential.Groups[0]
	return a, nil
}

// missingPowers returns the names of the powers that this process does not have.
func missingPowers() (missing []string) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if unix.Capget(&header, &sets[0]) != nil {
		sets = [2]unix.CapUserData{}
	}
	for _, p := range powers {
		if sets[p.capability/32].Effective&(1<<(p.capability%32)) == 0 {
			missing = append(missing, p.name)
		}
	}
	return missing
}

// check tries, as the user, to enter dir and to find that path can be run. The error continues a
// sentence that begins with the key.
func (a *account) check(path, dir string) error {
	if a.credential == nil {
		return nil
	}
	cmd := exec.Command(probe, "-c", `[ -x "$0" ]`, path)
	cmd.Dir, cmd.Env = dir, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*exec.ExitError)):
		return fmt.Errorf("is %q, who may not run %s", a.name, path)
	case errors.Is(err, fs.ErrPermission) && dir != "":
		return fmt.Errorf("is %q, who may not enter the working directory %s", a.name, dir)
	case errors.Is(err, fs.ErrNotExist): // no such program here, or no such directory
		return nil
	}
	return fmt.Errorf("is %q, as whom nothing can be started: %w", a.name, err)
}

// switchTo lets the command of attr run as the user, unless a is nil. It must be called on the
// thread that starts the command.
//
// An agent that is not root has its powers as ambient ones, which a command would inherit and by
// which it could become root. So no command gets them, whatever user it runs as.
func (a *account) switchTo(attr *syscall.SysProcAttr) error {
	for _, p := range powers {
		err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, uintptr(p.capability), 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) { // of a kernel that has none
			return fmt.Errorf("drop %s: %w", p.name, err)
		}
	}
	if a != nil {
		attr.Credential = a.credential
	}
	return nil
}
