package wire

// FieldDocs describes the fields of package freeslot's types, by type and field, in OpenAPI and in
// the schemas of frames.
var FieldDocs = map[string]map[string]string{
	"Job": {
		"service":      "Names the handler that runs the job; the node must have it installed.",
		"payload":      "Any JSON value, handed to the handler as it is.",
		"requirement":  "What the node must offer besides the service.",
		"affinity_key": "Jobs with the same key go to the same node while that has room. At most 128 bytes.",
		"slots":        "How much of a node's capacity the job takes; absent means 1.",
		"priority": "Of jobs that wait for the same nodes the ones with a higher priority come first. 0, the " +
			"lowest, to 9; absent means 0.",
		"max_attempts": "How often the job may fail before it is dead: the loss of its node counts, and so does an " +
			"error that the handler calls retryable. 1 to 100; absent means 3.",
		"timeout_ms": "How long the job may take from its submission to its end, in milliseconds, at most 30 " +
			"days; then it expires. Absent means no limit.",
		"run_at_ms": "The job does not begin before this time, in milliseconds since 1970; it is scheduled " +
			"until then. Absent means at once.",
		"idempotency_key": "A second job of the tenant with the same key is not created; the answer has the id of the " +
			"first. At most 128 bytes.",
		"concurrency_key": "Of the tenant's jobs with the same key concurrency_limit run at a time; further ones " +
			"wait, by priority and age. Jobs of one key should ask for the same nodes. At most 128 bytes.",
		"concurrency_limit": "How many jobs with the concurrency_key may run at a time, 1 to 65536; the job submitted " +
			"last decides for all. Absent means 1.",
		"progress_timeout_ms": "How long the handler may tell no progress, in milliseconds, at most 30 days; then the " +
			"attempt has failed as stalled, and the job is tried again while max_attempts lasts. Absent means no limit.",
		"on_lease_loss": "What a node does with the running job when it has not reached Redis for the heartbeat limit; " +
			"cancel keeps it from running beside its next attempt. Absent means continue.",
		"traceparent": "The W3C trace context of the submitter.",
		"admission":   "What a chain decided about the job. The scheduler sets it; a submission's is ignored.",
	},
	"Admission": {
		"chain":                "The chain that decided.",
		"version":              "Of the chain; 0: it was not known.",
		"outcome":              "allow, deny, unknown or variant.",
		"rule":                 "The rule that decided; absent for the default.",
		"reason":               "What led to the outcome, in words for people.",
		"observed":             "The chain only observes: the outcome changed nothing.",
		"pool":                 "The pool that the variant set.",
		"preferred_pool":       "The preferred pool that the variant set.",
		"asked_pool":           "The pool that the job asked for before.",
		"asked_preferred_pool": "The preferred pool that the job asked for before.",
	},
	"Progress": {
		"attempt": "Which try of the job told it, from 1.",
		"seq":     "Counts what the attempt told, from 1; numbers are missing where something later took their place.",
		"at_ms":   "When it was reported, by the store's clock, in milliseconds since 1970.",
		"value":   "Any JSON value of at most 4 KiB.",
	},
	"Requirement": {
		"pool":           "Only nodes of this pool.",
		"preferred_pool": "Fitting nodes of this pool come first, the other fitting nodes after them.",
		"services": "Further services that the node must have installed, each optionally with a range of versions: " +
			"asr@>=1.2 <2.",
		"source_language": "A BCP 47 tag of a language that the node must understand.",
		"target_language": "A BCP 47 tag of a language that the node must produce.",
		"labels":          "Labels that the node must have, with these very values.",
		"label_rules":     "Comparisons of the node's labels. All of them must hold.",
		"features":        "Features that the node must have.",
	},
	"LabelRule": {
		"label":    "The label's name. A label that the node does not have fails all operators but not_in and not_exists.",
		"operator": "gt, ge, lt and le compare decimal numbers.",
		"values":   "1 to 64 for in and not_in, none for exists and not_exists, one decimal number for the others.",
	},
	"JobStatus": {
		"node":    "Where the job runs or ran last; empty before its first attempt, and while it waits for the next.",
		"class":   "The id of the job's class: jobs with the same requirement.",
		"attempt": "Which try that is, from 1; 0 before the first.",
		"result":  "What the handler returned; only in state succeeded.",
		"error": "What failed last: in the states failed and dead, and in retry_wait and expired where an " +
			"attempt had failed; in expired also for lack of a node.",
		"progress":    "What a handler of the job told last; absent where none has, and in listings.",
		"failures":    "How many attempts failed; absent means none.",
		"priority":    "As submitted; absent means 0.",
		"deadline_ms": "When the job expires, by the store's clock, in milliseconds since 1970; absent means never.",
		"run_at_ms": "When a job that is scheduled or in retry_wait begins to wait for a slot, by the store's " +
			"clock, in milliseconds since 1970; absent otherwise.",
		"position": "The job's place among those that wait for the same nodes, from 1, when it was looked up; " +
			"absent when it does not wait, and in listings.",
		"held_by": "What keeps the job waiting although slots may be free: max_running of its tenant, its " +
			"concurrency_key, or a pause of its service, class or pool. Absent where nothing does, and in listings.",
		"waits_for_pool": "The pool whose next node a waiting job needs: no node fits that runs, and the pool expects " +
			"nodes that will. Absent in listings.",
		"node_by_ms": "When the job expires as no_matching_node unless a node fits it then, by the store's clock, in " +
			"milliseconds since 1970; absent for a job that a node fitted when it was accepted, and once it has begun.",
		"submitted_at_ms": "The store's clock, in milliseconds since 1970.",
		"assigned_at_ms":  "When the last attempt began, by the store's clock, in milliseconds since 1970; 0 means not yet.",
		"finished_at_ms":  "The store's clock, in milliseconds since 1970; absent means not yet.",
	},
}
