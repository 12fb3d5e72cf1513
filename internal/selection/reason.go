package selection

// Reason is the first thing about a node that keeps a job from it; "" means that
// nothing does. Reasons are the keys of freeslot.Error.Breakdown and so part of
// the wire protocol.
type Reason string

// Reasons that follow from the node's profile, the pools and the job's class, in
// the order in which they are checked.
const (
	// ReasonService: the job's service or one that it requires besides is not installed.
	ReasonService Reason = "service"
	// ReasonPool: the node is in none of the pools to which the job is restricted,
	// by name or by its languages.
	ReasonPool Reason = "pool"
	// ReasonSourceLanguage: the node does not understand the source language.
	ReasonSourceLanguage Reason = "source_language"
	// ReasonTargetLanguage: the node does not produce the target language.
	ReasonTargetLanguage Reason = "target_language"
	// ReasonLanguagePair: the node handles both languages, but its translation
	// stage does not have both.
	ReasonLanguagePair Reason = "language_pair"
	// ReasonLabels: a label is missing or has another value.
	ReasonLabels Reason = "labels"
)

// Reasons that concern one choice, in the order in which they are checked, after
// those above.
const (
	// ReasonSlots: the job asks for more slots than the node has, used or not. It
	// will not fit until the node's profile changes.
	ReasonSlots Reason = "slots"
	// ReasonDraining: the node takes nothing new.
	ReasonDraining Reason = "draining"
	// ReasonSilent: nothing was heard from the node for too long.
	ReasonSilent Reason = "silent"
	// ReasonFull: too few free slots at the moment.
	ReasonFull Reason = "full"
	// ReasonExcluded: the query excludes the node.
	ReasonExcluded Reason = "excluded"
)
