package selection

// Reason is the first thing that keeps a job from a node; "" if nothing does. Reasons are the keys
// of freeslot.Error.Breakdown and so part of the wire protocol.
type Reason string

// Reasons that follow from the node's profile, the pools and the job's class, in the order in which
// they are checked.
const (
	// ReasonService: the node does not offer the job's service or another one that it requires.
	ReasonService Reason = "service"
	// ReasonServiceVersion: all services are installed, but the version of one is not in the range
	// that the job asks for.
	ReasonServiceVersion Reason = "service_version"
	// ReasonPool: the node is in none of the pools to which the job is restricted, by name or by
	// its languages.
	ReasonPool Reason = "pool"
	// ReasonSourceLanguage: the node does not understand the source language.
	ReasonSourceLanguage Reason = "source_language"
	// ReasonTargetLanguage: the node does not produce the target language.
	ReasonTargetLanguage Reason = "target_language"
	// ReasonLanguagePair: the node handles both languages, but its translation stage does not have
	// both.
	ReasonLanguagePair Reason = "language_pair"
	// ReasonLabels: a label is missing or has another value, or a label rule fails.
	ReasonLabels Reason = "labels"
	// ReasonFeatures: the node does not have a feature, or states that it is false.
	ReasonFeatures Reason = "features"
)

// Reasons that concern one choice, in the order in which they are checked, after the reasons above.
const (
	// ReasonPaused: the service, the class or all pools through which the node would take the job
	// are paused.
	ReasonPaused Reason = "paused"
	// ReasonSlots: the job asks for more slots than the node has, used or free. It will not fit
	// until the node's profile changes.
	ReasonSlots Reason = "slots"
	// ReasonUnreachable: the node's cell does not answer.
	ReasonUnreachable Reason = "unreachable"
	// ReasonDraining: the node takes no new jobs.
	ReasonDraining Reason = "draining"
	// ReasonSilent: the last sign of life of the node is too old.
	ReasonSilent Reason = "silent"
	// ReasonQuarantined: the node refused several jobs in a row; see [Node.Refused].
	ReasonQuarantined Reason = "quarantined"
	// ReasonFull: the node has too few free slots at the moment.
	ReasonFull Reason = "full"
	// ReasonExcluded: the query excludes the node.
	ReasonExcluded Reason = "excluded"
)

// Reasons lists every reason, in the order in which they are checked.
func Reasons() []Reason {
	return []Reason{
		ReasonService, ReasonServiceVersion, ReasonPool, ReasonSourceLanguage, ReasonTargetLanguage, ReasonLanguagePair,
		ReasonLabels,
		ReasonFeatures,
		ReasonPaused, ReasonSlots, ReasonUnreachable, ReasonDraining, ReasonSilent, ReasonQuarantined, ReasonFull,
		ReasonExcluded,
	}
}
