package cell

import (
	"embed"
	"fmt"
	"regexp"

	"github.com/redis/rueidis"
)

//go:embed script
var sources embed.FS

var includeLine = regexp.MustCompile(`(?m)^-- include (\S+)$`)

// scripts holds one compiled script an operation.
type scripts struct {
	register, heartbeat, deregister, submit, complete, cancel, attach, changes *rueidis.Lua
}

func loadScripts() scripts {
	return scripts{
		register:   rueidis.NewLuaScript(source("register")),
		heartbeat:  rueidis.NewLuaScript(source("heartbeat")),
		deregister: rueidis.NewLuaScript(source("deregister")),
		submit:     rueidis.NewLuaScript(source("submit")),
		complete:   rueidis.NewLuaScript(source("complete")),
		cancel:     rueidis.NewLuaScript(source("cancel")),
		attach:     rueidis.NewLuaScript(source("attach")),
		// Read-only, but not called so: the embedded server takes TIME for a write.
		changes: rueidis.NewLuaScript(source("changes")),
	}
}

// source is the text of one script with the library parts it includes. A script
// that is missing from the binary is a broken build.
func source(name string) string {
	return includeLine.ReplaceAllStringFunc(mustRead(name+".lua"), func(line string) string {
		return mustRead(includeLine.FindStringSubmatch(line)[1])
	})
}

func mustRead(path string) string {
	text, err := sources.ReadFile("script/" + path)
	if err != nil {
		panic(fmt.Sprintf("cell: embedded script: %v", err))
	}
	return string(text)
}
