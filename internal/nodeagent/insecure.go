package nodeagent

import (
	"os"
	"runtime"
	"strconv"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// Insecure returns what is better changed in a valid configuration, apart from the way to the
// gateways. asRoot is true if the agent runs as root.
func (c *Config) Insecure(asRoot bool) config.Problems {
	var found config.Problems
	for _, secret := range []struct{ key, file string }{
		{"token_file", c.TokenFile},
		{"redis.password_file", c.Redis.PasswordFile},
		{"redis.sentinel_password_file", c.Redis.SentinelPasswordFile},
	} {
		if everyoneReads(secret.file) {
			found.Addf(secret.key, "is %q, which every user of this machine can read, expected mode 0400", secret.file)
		}
	}
	for i := range c.Services {
		if m := c.Services[i].Command; m != nil && asRoot && m.asRoot() {
			found.Addf(
				"services["+strconv.Itoa(i)+"].command", "runs as root, expected user, or an agent that runs as a user of its own",
			)
		}
	}
	return found
}

// asRoot reports whether an agent that is root runs the command as root.
func (c *Command) asRoot() bool {
	if c.User == "" {
		return true
	}
	as, err := lookUp(c.User)
	return err == nil && as.root
}

// everyoneReads reports whether users who neither own the file nor are in its group can read it.
func everyoneReads(file string) bool {
	info, err := os.Stat(file)
	return err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0
}
