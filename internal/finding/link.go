package finding

import (
	"cmp"
	"net/url"
	"strings"
)

// views has the view of the console that shows a kind of findings, the first part of their ids.
// What has no view there has none in the console.
var views = map[string]string{
	"agents":      "nodes",
	"certificate": "replicas",
	"jobs":        "dead",
	"lists":       "lists",
	"locks":       "locks",
	"nodes":       "nodes",
	"queues":      "queues",
	"redis":       "replicas",
	"replica":     "replicas",
	"replicas":    "replicas",
	"schedules":   "schedules",
}

// linkOf returns the address in the console that shows what a finding is about: the view, and if it
// is about one thing alone, that thing.
func linkOf(f *Finding) string {
	kind, _, _ := strings.Cut(f.ID, ".")
	view := views[kind]
	if view == "" {
		return ""
	}
	link := "#/" + view
	if len(f.Names) == 1 {
		switch kind {
		case "nodes", "lists", "locks":
			return link + "/" + url.PathEscape(f.Names[0])
		case "schedules":
			tenant, name, _ := strings.Cut(f.Names[0], "/")
			return link + "/" + url.PathEscape(name) + "?tenant=" + url.QueryEscape(tenant)
		}
	}
	if f.ID == "nodes.silent" {
		return link + "?status=silent"
	}
	return link
}

// docs has the section about a finding, for those that have one of their own.
var docs = map[string]string{
	"redis.memory":   "docs/redis.md#maxmemory",
	"redis.replicas": "docs/redis.md#repl-backlog-size",
	"redis.settings": "docs/redis.md#settings",
}

// docsOf returns the section about a finding whose source names none.
func docsOf(f *Finding) string {
	parts := strings.SplitN(f.ID, ".", 3)
	return cmp.Or(docs[strings.Join(parts[:min(len(parts), 2)], ".")], "docs/scheduler.md#what-is-wrong-now")
}
