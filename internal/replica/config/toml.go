package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parseTOML reads a TOML document. lineOf returns the line of the value at a path, or of the
// nearest key around it.
func parseTOML(data []byte) (document map[string]any, lineOf func(path string) int, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := toml.Unmarshal(data, &document); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, column := at.Position()
			err = fmt.Errorf("line %d, column %d: %s", row, column, strings.TrimPrefix(at.Error(), "toml: "))
		}
		return nil, nil, err
	}
	lines := tomlLines(data)
	return document, func(path string) int {
		for path != "" {
			if n, ok := lines[path]; ok {
				return n
			}
			path = path[:max(strings.LastIndexAny(path, ".["), 0)]
		}
		return 1
	}, nil
}

// tomlLines returns the line of each key and table of a valid document, by path.
func tomlLines(data []byte) map[string]int {
	lines := map[string]int{}
	tables := map[string]int{} // how many [[tables]] of a path there have been
	var p unstable.Parser
	var table string
	p.Reset(data)
	for p.NextExpression() {
		e := p.Expression()
		path := ""
		if e.Kind == unstable.KeyValue {
			path = table
		}
		number := 0
		for key := e.Key(); key.Next(); {
			path = join(path, string(key.Node().Data))
			number = p.Shape(key.Node().Raw).Start.Line
			if n := tables[path]; n > 0 && !(e.Kind == unstable.ArrayTable && key.IsLast()) {
				path += "[" + strconv.Itoa(n-1) + "]"
			}
			if _, ok := lines[path]; !ok {
				lines[path] = number
			}
		}
		switch e.Kind {
		case unstable.ArrayTable:
			tables[path]++
			table = element(path, tables[path]-1)
			lines[table] = number
		case unstable.Table:
			table = path
		}
	}
	return lines
}
