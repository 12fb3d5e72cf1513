package schedule

import "github.com/freeslot/freeslot/internal/script"

// keys holds the names of the keys in which a cell keeps its schedules, by their ids.
type keys struct {
	// definitions and states are hashes of the definition and the state of each schedule.
	definitions, states string
	// index is the zset of all schedules with the score 0, so in the order of their ids.
	index string
	// due is the zset of schedules by the time (ms) at which a replica must look at them.
	due string
}

func keysOf(l script.Layout) keys {
	return keys{
		definitions: l.Key("cron", ""), states: l.Key("cron:state", ""), index: l.Key("cron:index", ""),
		due: l.Key("cron:due", ""),
	}
}
