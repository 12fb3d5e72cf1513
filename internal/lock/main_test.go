package lock

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

// TestMain runs the tests with the rights of the role lock.
func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		child(what)
		return
	}
	guard(scripts)
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // most tests wait most of the time
	}
	acltest.Main(m, script.RoleLock, Access)
}

// guard makes it an error that a script reads beyond the end of KEYS or ARGV, where Lua reads nil
// and a caller that passes too few would go unnoticed.
func guard(set script.Set) {
	line := `local %[1]s = setmetatable({unpack(%[1]s)}, {__index = function(t, i) error('%[1]s[' .. tostring(i) .. '] of ' .. #t) end})` + "\n"
	lines := fmt.Sprintf(line, "KEYS") + fmt.Sprintf(line, "ARGV")
	for name, s := range set {
		set[name] = script.New(name, lines+s.Text(false))
	}
}
