package pool

import "github.com/freeslot/freeslot/internal/script"

// keys holds the names of all keys of the configuration, and of its channel. They are in the first
// cell of a system.
type keys struct {
	// document holds the configuration, a JSON object with its version.
	document string
	// paused holds what is paused in this version, as a JSON object. It has a key of its own,
	// because a release that does not know of pauses refuses a document with an unknown field.
	paused string
	// version is a hash of the configuration's version and generation.
	version string
	// history is a hash of the last versions: <version> and <version>:meta.
	history string
	// pairs is a hash of the pools by language pair ("zh:en" -> "pool-1,pool-2").
	pairs string
	// pairsVersion holds the version of the configuration that last changed pairs.
	pairsVersion string
	// channel announces new versions. It has no hash tag: they are sent by PUBLISH, which on a
	// cluster reaches the subscribers of every server.
	channel string
}

func keysOf(l script.Layout) keys {
	return keys{
		document: l.Key("config:phase3", ""), paused: l.Key("config:paused", ""), version: l.Key("version:config", ""),
		history: l.Key("config:history", ""),
		pairs:   l.Key("index:lang_pairs", ""), pairsVersion: l.Key("version:index", ""),
		channel: l.Prefix + ":events:config_update",
	}
}
