package pool

import "github.com/freeslot/freeslot/internal/script"

// keys are the names of all keys of the configuration, and of its channel. They are in the first cell of a system.
type keys struct {
	// document is the configuration, a JSON object with its version.
	document string
	// paused is what is paused, a JSON object, of the version that version tells. It has a key of its own, because a
	// release that does not know of pauses refuses a document with a field that it does not know.
	paused string
	// version is the hash of the configuration's version and generation.
	version string
	// history is the hash of the last versions: <version> and <version>:meta.
	history string
	// pairs is the hash of the pools by language pair ("zh:en" -> "pool-1,pool-2").
	pairs string
	// pairsVersion is the version of the configuration that last changed pairs.
	pairsVersion string
	// channel tells of new versions. It has no tag: messages go by PUBLISH, which on a cluster reaches the
	// subscribers of every server.
	channel string
}

func keysOf(l script.Layout) keys {
	return keys{
		document: l.Key("config:phase3", ""), paused: l.Key("config:paused", ""), version: l.Key("version:config", ""), history: l.Key("config:history", ""),
		pairs: l.Key("index:lang_pairs", ""), pairsVersion: l.Key("version:index", ""),
		channel: l.Prefix + ":events:config_update",
	}
}
