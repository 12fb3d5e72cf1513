package identity

// Role is the set of calls that a caller may make.
type Role string

// The roles.
const (
	// Viewer sees what an operator sees, and changes nothing.
	Viewer Role = "viewer"
	// Client submits jobs, and sees and changes its tenant's jobs and schedules.
	Client Role = "client"
	// TenantOperator also has an operator's calls about its tenant's jobs.
	TenantOperator Role = "tenant-operator"
	// Operator sees everything, and changes most of it.
	Operator Role = "operator"
	// Admin may make every call.
	Admin Role = "admin"
)

// Roles are all roles, in the order of the table's columns.
var Roles = [...]Role{Viewer, Client, TenantOperator, Operator, Admin}

// RoleNames returns the roles as text.
func RoleNames() []string {
	var names []string
	for _, r := range Roles {
		names = append(names, string(r))
	}
	return names
}
