package pool

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot/internal/selection"
)

// configDocs describes the fields of types of package selection, by schema and field. An unknown
// name panics in document, and so in every test.
var configDocs = map[string]map[string]string{
	"Config": {
		"enabled": "When false, configured pools have no members and restrict nothing. Without it: whether " +
			"there are pools.",
		"mode": "two_level: the job's languages give the pools, the pools give the nodes. flat: pools " +
			"restrict only the jobs that name one.",
		"policy": "least_loaded: the less loaded of the sampled nodes. binpack: the most loaded one that has room.",
		"affinity_load_factor": "How many times as loaded as the average a node may be and still get jobs for their " +
			"affinity key.",
		"pools": "In order of preference.",
		"paused": "What no new job begins by, whatever enabled says. A change without it leaves what is paused as it is; " +
			"an empty one ends all pauses.",
	},
	"Paused": {
		"pools":    "A node takes no jobs by way of these.",
		"services": "Nor do jobs of these begin, or jobs that ask for one besides their own.",
		"classes":  "Nor do jobs of these, by their ids.",
	},
	"Pool": {
		"members": "Ids of nodes that are in the pool whatever its rule says.",
		"source_languages": "BCP 47 tags. The node must understand one of these; jobs in these languages are restricted " +
			"to the pools that cover them.",
		"target_languages": "BCP 47 tags. The node must produce one of these; as above.",
		"services": "The node must have all of these installed, each optionally in a range of versions: " +
			"asr@>=1.2 <2.",
		"labels": "The node must have all of these labels with these very values.",
		"expects": "What the nodes of this pool will offer. Jobs that fit wait for a node that does not run yet; " +
			"without it they are refused with no_matching_node.",
		"max_wait_for_node": "How long a job waits for a node that fits because of expects: a duration such as 90s or " +
			"1h, from 1s to 24h. Absent means 10m.",
		"target_wait": "The longest that jobs should wait for a slot: a duration such as 30s, from 1s to 24h. " +
			"GET /v1/demand then proposes how many nodes the pool should have.",
	},
	"Expects": {
		"services":  "Services that the node will have, each optionally with its version: asr@1.4.2.",
		"labels":    "Labels that the node will have.",
		"languages": "Languages that the node will handle.",
		"slots":     "Its max_concurrency; absent means 1. A job that takes more does not wait.",
	},
	"ExpectedLanguages": {
		"asr":      "Languages that the node will understand, as BCP 47 tags.",
		"tts":      "Languages that the node will produce, as BCP 47 tags.",
		"semantic": "Languages of its translation stage, as BCP 47 tags.",
	},
}

// document adds to the OpenAPI document what the Go types cannot say.
func (r *routes) document(doc *huma.OpenAPI) {
	doc.Tags = append(doc.Tags, &huma.Tag{
		Name: "config", Description: "Pools, pauses, and the configuration that replicas share.",
	})
	path := doc.Paths[configPath]
	schemas := doc.Components.Schemas
	for op, typ := range map[*huma.Operation]reflect.Type{
		path.Put:                               reflect.TypeFor[ConfigUpdate](),
		doc.Paths[configPath+"/rollback"].Post: reflect.TypeFor[ConfigRollback](),
	} {
		op.RequestBody = &huma.RequestBody{
			Required: true,
			Content:  map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(typ, true, typ.Name())}},
		}
	}
	components := schemas.Map()
	// It is raw JSON in Go, so that one answer names everything that is wrong with it.
	components["ConfigUpdate"].Properties["config"] = schemas.Schema(reflect.TypeFor[selection.Config](), true, "Config")
	components["Config"].Properties["mode"].Enum = []any{string(selection.ModeTwoLevel), string(selection.ModeFlat)}
	components["Config"].Properties["policy"].Enum = []any{
		string(selection.PolicyLeastLoaded), string(selection.PolicyBinpack),
	}
	for schema, fields := range configDocs {
		for field, text := range fields {
			components[schema].Properties[field].Description = text
		}
	}
	body := schemas.Schema(reflect.TypeFor[PauseRequest](), true, "PauseRequest")
	for _, p := range pausables {
		for _, action := range []string{"pause", "resume"} {
			op := doc.Paths["/v1/"+p.plural+"/{id}/"+action].Post
			op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": {Schema: body}}}
		}
	}
}
