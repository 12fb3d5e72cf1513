// Package config reads configurations into a plain struct: a YAML file, the environment and flags,
// over defaults. It owns the configuration of a replica ([Replica]) and the keys that nodeagent
// shares with it.
//
// A configuration is a struct whose fields carry `koanf:"name"` tags. [Load] fills it. It refuses
// unknown keys and names the known ones, values of the wrong type with the expected one, and
// everything that the struct's own Validate method objects to. All problems are reported at once,
// one line each, with the line of the file, the variable or the flag.
//
//	type Agent struct {
//		Heartbeat time.Duration     `koanf:"heartbeat"`
//		Labels    map[string]string `koanf:"labels"`
//		Redis     struct {
//			URL string `koanf:"url" secret:"true"`
//		} `koanf:"redis"`
//	}
//
//	func (a *Agent) Validate(p *config.Problems) {
//		if a.Heartbeat < time.Second {
//			p.Addf("heartbeat", "is %v, expected at least 1s", a.Heartbeat)
//		}
//	}
//
//	agent, err := config.Load(Agent{Heartbeat: 3 * time.Second}, config.Options{
//		File:  "agent.yaml",
//		Flags: []config.Flag{{Name: "--redis-url", Path: "redis.url", Value: "redis://10.0.0.1:6379"}},
//	})
//
// Fields can be structs, pointers, strings, booleans, int, int64, float64, [time.Duration], and
// slices and string-keyed maps of those. A nil pointer means that the key is absent.
//
// Flags win over the environment, the environment over the file, the file over the defaults. Maps
// are merged key by key, lists are replaced. The variable of redis.url is FREESLOT_REDIS__URL: two
// underscores step into a section. In the environment and in flags a list of texts is written a,b,c
// and a map of texts k=v,k=v. Anything deeper is YAML in one line ([{id: a}, {id: b}]).
package config
