package registry

import "github.com/freeslot/freeslot/internal/script"

// tags is the number of hash tags over which the services of a cluster are spread. It must never
// change: two processes that disagree would not find each other's services.
const tags = 16

// keys names the keys and channels of the services with one tag; docs/design/registry.md says what
// they hold.
type keys struct{ layout script.Layout }

func (k keys) services() string { return k.layout.Key("registry:services", "") }
func (k keys) heartbeats(service string) string {
	return k.layout.Key("registry:services", service+":heartbeats")
}

func (k keys) instance(service, id string) string {
	return k.layout.Key("registry:services", service+":"+id)
}
func (k keys) record(service string) string    { return k.layout.Key("registry:service", service) }
func (k keys) changes(service string) string   { return k.layout.Key("registry:changes", service) }
func (k keys) overrides(service string) string { return k.layout.Key("registry:overrides", service) }

func (k keys) replaced(service string) string {
	return k.layout.Key("registry:service_replaced", service)
}
func (k keys) checked() string           { return k.layout.Key("registry:checked", "") }
func (k keys) doubts() string            { return k.layout.Key("registry:doubts", "") }
func (k keys) configs() string           { return k.layout.Key("registry:configs", "") }
func (k keys) config(name string) string { return k.layout.Key("registry:config", name) }
func (k keys) configHistory(name string) string {
	return k.layout.Key("registry:config_history", name)
}

func (k keys) configChange(name string) string {
	return k.layout.Key("registry:config_change", name)
}

func (k keys) documentKeys(name string) []string {
	return []string{k.config(name), k.configHistory(name), k.configs()}
}
func (k keys) change(service string) string  { return k.layout.Key("service_change", service) }
func (k keys) metrics(service string) string { return k.layout.Key("service_metrics", service) }

// layouts returns the layout of each tag: one on a single server, 16 on a cluster.
func layouts(prefix string, cluster bool) []script.Layout {
	n := 1
	if cluster {
		n = tags
	}
	return script.Layouts(prefix, n, cluster)
}
