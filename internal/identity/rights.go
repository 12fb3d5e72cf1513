package identity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
)

// Grant says whose things a caller may see or change by one call.
type Grant string

// The grants.
const (
	None Grant = ""
	// Own: things of the caller's tenant. A submitted job is always the caller's tenant's.
	Own Grant = "own"
	// All: things of all tenants, and things that belong to no tenant.
	All Grant = "all"
)

// row holds the grants of the roles, in the order of Roles.
type row [len(Roles)]Grant

// The kinds of rows: viewer, client, tenant-operator, operator, admin.
var (
	submit     = row{None, Own, Own, Own, Own}
	seeJob     = row{All, Own, Own, All, All}
	changeJob  = row{None, Own, Own, All, All}
	operateJob = row{All, None, Own, All, All}
	see        = row{All, None, None, All, All}
	change     = row{None, None, None, All, All}
	administer = row{None, None, None, None, All}
	read       = row{All, All, All, All, All}
	report     = row{None, All, All, All, All}
	// Lists that applications of a tenant own, and what they apply for.
	seeOwn    = row{All, None, Own, All, All}
	changeOwn = row{None, None, Own, All, All}
	apply     = row{None, None, Own, None, All}
)

// The frames of a client's WebSocket.
const (
	FrameSubmit = "frame submit"
	FrameAttach = "frame attach"
	FrameCancel = "frame cancel"
	FramePing   = "frame ping"
)

// Metrics is the scrape of /metrics, where that asks for a token.
const Metrics = "metrics"

// rights holds the row of each operation of the OpenAPI document, and of each frame.
var rights = map[string]row{
	Metrics: see,

	FrameSubmit: submit,
	FrameAttach: submit, // it takes the job's messages away from another session
	FrameCancel: changeJob,
	FramePing:   read,

	"submit-job":            submit,
	"get-job":               seeJob,
	"get-job-spec":          seeJob,
	"list-jobs":             seeJob,
	"count-dead-letters":    seeJob,
	"cancel-job":            changeJob,
	"requeue-job":           changeJob,
	"drop-job":              changeJob,
	"restore-job":           administer, // for any tenant
	"explain-submitted-job": operateJob,
	"explain-job":           see,
	"list-queues":           see,
	"plan-bulk":             changeJob,
	"start-bulk":            changeJob,
	"stop-bulk":             changeJob,
	"list-bulk":             seeJob,
	"get-bulk":              seeJob,

	"list-nodes":   see,
	"get-node":     see,
	"drain-node":   change,
	"undrain-node": change,
	"remove-node":  administer,

	"list-schedules":  seeJob,
	"get-schedule":    seeJob,
	"put-schedule":    changeJob,
	"delete-schedule": changeJob,
	"pause-schedule":  changeJob,
	"resume-schedule": changeJob,
	"run-schedule":    changeJob,

	"get-config":           see,
	"list-config-versions": see,
	"get-config-version":   see,
	"list-pools":           see,
	"get-pool":             see,
	"put-config":           administer,
	"rollback-config":      administer,
	"pause-pool":           change,
	"resume-pool":          change,
	"pause-service":        change,
	"resume-service":       change,
	"pause-class":          change,
	"resume-class":         change,

	"list-locks":      see,
	"get-lock":        see,
	"list-lock-audit": see,
	"revoke-lock":     administer,

	"list-services":                 see,
	"get-service":                   see,
	"list-instances":                see,
	"get-instance":                  see,
	"get-instance-metrics":          see,
	"get-registry-health":           see,
	"get-service-health":            see,
	"list-node-services":            see,
	"get-migration":                 see,
	"override-instance":             change,
	"reset-instance":                change,
	"set-cleanup":                   change,
	"register-persistent":           change,
	"remove-instance":               change,
	"finish-migration":              change,
	"discover":                      read,
	"list-replicas":                 read,
	"list-config-documents":         see,
	"get-config-document":           see,
	"list-config-document-versions": see,
	"diff-config-document":          see,
	"put-config-document":           change,
	"rollback-config-document":      change,
	"delete-config-document":        change,
	"read-document":                 read,

	"list-audit":    see,
	"list-findings": see,
	"get-history":   see,
	"get-demand":    see,

	"list-replica-statuses": see,
	"list-tenants":          seeJob,
	"list-tokens":           administer,
	"whoami":                read,

	"list-lists":          seeOwn,
	"get-list":            seeOwn,
	"list-versions":       seeOwn,
	"diff-version":        seeOwn,
	"sample-version":      seeOwn,
	"list-rejects":        seeOwn,
	"export-list":         seeOwn,
	"list-uploads":        seeOwn,
	"list-upload-rejects": seeOwn,
	"get-upload":          seeOwn,
	"query-list":          seeOwn,
	"count-list":          seeOwn,
	"list-clients":        seeOwn,
	"apply-list":          changeOwn,
	"delete-list":         changeOwn,
	"accept-version":      changeOwn,
	"list-statistics":     seeOwn,
	"verify-version":      change,
	"open-upload":         changeOwn,
	"put-chunk":           changeOwn,
	"commit-upload":       changeOwn,
	"drop-upload":         changeOwn,
	"switch-list":         changeOwn,
	"expand-list":         change,
	"move-list":           change,
	"freeze-list":         change,
	"unfreeze-list":       change,
	"cancel-operation":    changeOwn,
	"edit-list":           changeOwn,
	"open-session":        changeOwn,
	"stage-entries":       changeOwn,
	"commit-session":      changeOwn,
	"cancel-session":      changeOwn,
	"collect-lists":       change,
	"list-list-sources":   see,
	"get-list-source":     see,
	"set-list-source":     change,
	"unset-list-source":   change,
	"run-list-source":     change,
	"grant-list":          administer,
	"own-list":            administer,
	"list-requests":       seeOwn,
	"get-request":         seeOwn,
	"approve-request":     administer,
	"reject-request":      changeOwn, // of others by admins alone
	"list-applications":   seeOwn,
	"get-application":     seeOwn,
	"put-application":     apply,
	"delete-application":  apply,
	"list-marks":          read,
	"list-changes":        read,
	"get-block":           read,
	"list-ids":            read,
	"check-list":          read,
	"report-lists":        report,
	"get-chain":           read,
	"list-chains":         see,
	"chain-statistics":    see,
	"list-chain-versions": see,
	"get-chain-version":   see,
	"list-chain-clients":  see,
	"diff-chain":          see,
	"compare-chain":       see,
	"evaluate-chain":      read,
	"put-chain":           change,
	"rollback-chain":      change,
	"shadow-chain":        change,
	"delete-chain":        change,
}

// unaudited holds calls with the row of a change that change nothing, or have no effect before
// another one, which is audited.
var unaudited = map[string]bool{"list-tokens": true, "plan-bulk": true, "put-chunk": true, "stage-entries": true}

// ownJob holds the calls by which a client changes its own jobs. They are as many as its jobs.
var ownJob = map[string]bool{FrameCancel: true, "cancel-job": true, "requeue-job": true, "drop-job": true}

// Audited reports whether a call is a change that the audit records: every change except those that
// a client makes of its own jobs.
func (p *Principal) Audited(call string) bool {
	switch rights[call] {
	case change, changeOwn, apply, administer:
		return !unaudited[call]
	case changeJob:
		return !unaudited[call] && (p.Role != Client || !ownJob[call])
	}
	return false
}

// Calls returns the operations and frames that have a row, sorted.
func Calls() []string {
	calls := make([]string, 0, len(rights))
	for call := range rights {
		calls = append(calls, call)
	}
	slices.Sort(calls)
	return calls
}

// GrantOf returns what the role may do by this operation or frame.
func (r Role) GrantOf(call string) Grant {
	i := slices.Index(Roles[:], r)
	if i < 0 {
		return None
	}
	return rights[call][i]
}

// May returns the caller's grant for an operation or a frame, which is not None, or
// permission_denied.
func (p *Principal) May(call string) (Grant, error) {
	if grant := p.Role.GrantOf(call); grant != None {
		return grant, nil
	}
	var others []string
	for _, r := range Roles {
		if r.GrantOf(call) != None {
			others = append(others, string(r))
		}
	}
	return None, &freeslot.Error{
		Code: freeslot.CodePermissionDenied,
		Message: fmt.Sprintf(
			"the token's role is %s, and %s is for %s", p.Role, call, strings.Join(others, ", "),
		),
	}
}

// Allowed returns a sentence for the documentation of an operation or a frame: which roles may make
// the call. It is empty for a call without a row.
func Allowed(call string) string {
	all, own := rolesWith(call, All), rolesWith(call, Own)
	switch {
	case all == "" && own == "":
		return ""
	case own == "" && rolesWith(call, None) == "":
		return "Roles: all."
	case own == "":
		return "Roles: " + all + "."
	case all == "":
		return "Roles: " + own + ", each for its own tenant."
	default:
		return "Roles: " + all + "; " + own + " for their own tenant."
	}
}

func rolesWith(call string, grant Grant) string {
	var found []string
	for _, r := range Roles {
		if r.GrantOf(call) == grant {
			found = append(found, string(r))
		}
	}
	return strings.Join(found, ", ")
}
