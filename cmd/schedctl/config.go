package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/freeslot/freeslot/internal/pool"
	"github.com/freeslot/freeslot/internal/replica/config"
)

type configCmd struct {
	Show     configShowCmd     `cmd:"" help:"Print the configuration as YAML, ready for apply."`
	Apply    configApplyCmd    `cmd:"" help:"Put a configuration in force."`
	Diff     configDiffCmd     `cmd:"" help:"Show what a configuration would change."`
	History  configHistoryCmd  `cmd:"" help:"List the last 100 versions."`
	Rollback configRollbackCmd `cmd:"" help:"Put the content of an earlier version in force again."`
}

type configShowCmd struct {
	Version uint64 `placeholder:"N" help:"This version of the history instead of the current one."`
}

// Run prints YAML for apply. Its version key keeps apply from overwriting a change that another
// user makes meanwhile.
func (c *configShowCmd) Run(a *app) error {
	if c.Version > 0 {
		var v pool.ConfigVersion
		path := configPath + "/history/" + strconv.FormatUint(c.Version, 10)
		if err := a.call(http.MethodGet, path, nil, nil, &v); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(v)
		}
		_, _ = fmt.Fprintf(a.out, "# version %d of the history%s\n", v.Version, madeBy(v.Author, v.AtMS, v.Note))
		return printYAML(a.out, nil, v.Config)
	}
	current, err := a.currentConfig()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(current)
	}
	switch current.Source {
	case "redis":
		_, _ = fmt.Fprintf(a.out, "# version %d%s\n", current.Version, madeBy(current.Author, current.AtMS, current.Note))
	case "file":
		_, _ = fmt.Fprintln(a.out, "# from the replica's own file; there is none in Redis")
	default:
		_, _ = fmt.Fprintf(a.out, "# version %d of the history\n", current.InForce.Version)
	}
	if current.Edited && (current.Source == "redis" || len(current.Problems) > 0) {
		_, _ = fmt.Fprintln(a.out, "# somebody edited it in Redis by hand")
	}
	for _, p := range current.Problems {
		_, _ = fmt.Fprintf(a.out, "# what is in Redis is not in force: %s\n", clean(p.Message))
	}
	return printYAML(a.out, &current.Version, current.Config)
}

const configPath = "/v1/config"

func madeBy(author string, atMS int64, note string) string {
	s := ""
	if atMS > 0 {
		s = fmt.Sprintf(", by %s at %s", dash(clean(author)), clock(atMS))
	}
	if note != "" {
		s += ": " + clean(note)
	}
	return s
}

// printYAML encodes as JSON first, for the names of the API.
func printYAML(w io.Writer, version *uint64, cfg any) error {
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil || len(node.Content) != 1 {
		return fmt.Errorf("the scheduler answers with a configuration that is no mapping: %w", err)
	}
	blockStyle(&node)
	if version != nil {
		if _, err := fmt.Fprintf(w, "version: %d\n", *version); err != nil {
			return err
		}
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	return errors.Join(enc.Encode(node.Content[0]), enc.Close())
}

// blockStyle replaces the style of JSON, except in lists of words.
func blockStyle(n *yaml.Node) {
	words := n.Kind == yaml.SequenceNode
	for _, c := range n.Content {
		blockStyle(c)
		words = words && c.Kind == yaml.ScalarNode
	}
	n.Style = 0
	if words {
		n.Style = yaml.FlowStyle
	}
}

func (a *app) currentConfig() (current pool.PoolConfig, err error) {
	err = a.call(http.MethodGet, configPath, nil, nil, &current)
	return current, err
}

type configApplyCmd struct {
	File    string  `arg:"" help:"YAML or JSON file; - reads standard input."`
	DryRun  bool    `help:"Change nothing, and show what would change."`
	Note    string  `placeholder:"TEXT" help:"Why, for the history."`
	Author  string  `env:"USER" placeholder:"NAME" help:"Who, for the history (default: the user of this shell)."`
	Version *uint64 `placeholder:"N" help:"Refuse unless this is the current version (default: the file's version key, else whatever is current)."`
}

// Help is shown below the flags.
func (configApplyCmd) Help() string {
	return `Examples:
  schedctl config show > pools.yaml && $EDITOR pools.yaml && schedctl config apply pools.yaml --note "more gpu"
  schedctl config apply pools.yaml --dry-run

A file with a version key, as show prints it, is refused when somebody else has changed the configuration since.
docs/pools.md explains what a configuration holds.`
}

// Run applies.
func (c *configApplyCmd) Run(a *app) error {
	content, version, err := a.readConfig(c.File)
	if err != nil {
		return err
	}
	if c.Version != nil {
		version = c.Version
	}
	return a.changeConfig(configChange{
		content: content, version: version, dryRun: c.DryRun, note: c.Note, author: c.Author,
	})
}

type configDiffCmd struct {
	File     string `arg:"" help:"YAML or JSON file; - reads standard input."`
	ExitCode bool   `help:"End with exit code 1 when there are differences, 2 when the comparison failed."`
}

// Run compares.
func (c *configDiffCmd) Run(a *app) error {
	content, version, err := a.readConfig(c.File)
	if err != nil {
		return err
	}
	result, err := a.sendConfig(http.MethodPut, configPath, true, pool.ConfigUpdate{Config: content})
	if err != nil {
		return err
	}
	if err := a.printDiff(&result); err != nil || result.Unchanged {
		return err
	}
	if version != nil && *version != result.Version {
		a.warn("apply would refuse this file: its version is %d, and the configuration is at %d; "+
			"make the change in what \"schedctl config show\" prints now, or leave the version out", *version, result.Version)
	}
	if c.ExitCode {
		return errDiffers
	}
	return nil
}

// errDiffers means that there are differences; after other errors that is not known.
var errDiffers = errors.New("the configurations differ")

type configHistoryCmd struct{}

// Run lists versions.
func (configHistoryCmd) Run(a *app) error {
	var history pool.ConfigVersions
	if err := a.call(http.MethodGet, configPath+"/history", nil, nil, &history); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(history.Versions)
	}
	rows := [][]string{{"VERSION", "AT", "AUTHOR", "ACTION", "NOTE"}}
	for _, v := range history.Versions {
		action := v.Action
		if v.Restores > 0 {
			action = fmt.Sprintf("rollback to %d", v.Restores)
		}
		rows = append(rows, []string{fmt.Sprint(v.Version), clock(v.AtMS), dash(v.Author), action, dash(v.Note)})
	}
	return table(a.out, rows)
}

type configRollbackCmd struct {
	Version uint64  `arg:"" help:"Version of the history to put in force again."`
	DryRun  bool    `help:"Change nothing, and show what would change."`
	Seen    *uint64 `placeholder:"N" help:"The version that you saw in force; another one is a conflict (default: the current one)."`
	Note    string  `placeholder:"TEXT" help:"Why, for the history."`
	Author  string  `env:"USER" placeholder:"NAME" help:"Who, for the history (default: the user of this shell)."`
}

// Run goes back.
func (c *configRollbackCmd) Run(a *app) error {
	return a.changeConfig(configChange{
		restore: c.Version, version: c.Seen, dryRun: c.DryRun, note: c.Note, author: c.Author,
	})
}

// configChange is an update, or a rollback if restore is not 0.
type configChange struct {
	content json.RawMessage
	restore uint64
	// version nil stands for the current one.
	version      *uint64
	dryRun       bool
	note, author string
}

func (a *app) changeConfig(c configChange) error {
	if c.version == nil && !c.dryRun {
		current, err := a.currentConfig()
		if err != nil {
			return err
		}
		c.version = &current.Version
	}
	var result pool.ConfigResult
	var err error
	if c.restore > 0 {
		result, err = a.sendConfig(http.MethodPost, configPath+"/rollback", c.dryRun,
			pool.ConfigRollback{Version: c.version, Restore: c.restore, Note: c.note, Author: c.author})
	} else {
		result, err = a.sendConfig(http.MethodPut, configPath, c.dryRun,
			pool.ConfigUpdate{Version: c.version, Config: c.content, Note: c.note, Author: c.author})
	}
	if err != nil {
		return err
	}
	return a.printDiff(&result)
}

func (a *app) sendConfig(method, path string, dryRun bool, body any) (result pool.ConfigResult, err error) {
	query := url.Values{}
	if dryRun {
		query.Set("dry_run", "true")
	}
	err = a.call(method, path, query, body, &result)
	return result, err
}

// readConfig reads a file as JSON, without its version.
func (a *app) readConfig(file string) (content json.RawMessage, version *uint64, err error) {
	data, name, err := a.readInput(file, "the configuration")
	if err != nil {
		return nil, nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil, usage("%s is empty, expected a configuration; to have no pools, apply {\"enabled\": false}", name)
	}
	var top yaml.Node
	if yaml.Unmarshal(data, &top) == nil && len(top.Content) == 1 && top.Content[0].Kind == yaml.SequenceNode {
		return nil, nil, usage(
			"%s is a list, expected a mapping as \"schedctl config show\" prints it: pools are under \"pools:\"", name,
		)
	}
	document, err := config.ParseYAML(data)
	if err != nil {
		return nil, nil, usage("%s %w", name, err)
	}
	if v, ok := document["version"]; ok {
		n, isInt := v.(int)
		if !isInt || n < 0 {
			return nil, nil, usage("%s: version is %v, expected a whole number, 0 or more", name, v)
		}
		seen := uint64(n)
		version = &seen
		delete(document, "version")
	}
	content, err = json.Marshal(document)
	if err != nil {
		return nil, nil, usage("%s is no configuration: %w", name, err)
	}
	return content, version, nil
}
