package script

// Role says what a process is to the system, and so what it needs in Redis.
type Role string

// The roles.
const (
	// RoleAgent speaks for a node. It calls scripts only by their hashes, on the keys of its node.
	RoleAgent Role = "agent"
	// RoleReplica is a scheduler. It loads and calls all scripts, on all keys under the prefix.
	RoleReplica Role = "replica"
	// RoleOperator reads what is stored under the prefix.
	RoleOperator Role = "operator"
	// RoleImporter imports nodes under the prefix.
	RoleImporter Role = "importer"
	// RoleLock takes locks, under the prefix of locks.
	RoleLock Role = "lock"
	// RoleRegistry registers instances of services and follows services, under the prefix.
	RoleRegistry Role = "registry"
	// RoleListReader answers from lists of names (all lists or given ones) and reports what it has
	// loaded.
	RoleListReader Role = "list-reader"
	// RoleDoctor checks the servers (scheduler doctor), and reads which replicas run.
	RoleDoctor Role = "doctor"
)

// Roles lists all roles.
var Roles = []Role{
	RoleAgent, RoleReplica, RoleOperator, RoleImporter, RoleLock, RoleRegistry, RoleListReader, RoleDoctor,
}

// AnyNode stands for every node in place of an agent's node, and for every list in place of a
// reader's list.
const AnyNode = "*"

// Access states what one feature needs in Redis. Package acl makes users of Redis from the needs of
// all features. scripttest.CheckAccess compares it with the scripts and the Go code of the feature.
type Access struct {
	// Scripts are all scripts of the feature.
	Scripts Set
	// Roles holds the needs by role. A role that is not in it needs nothing.
	Roles map[Role]Needs
}

// Needs states what one role needs for a feature.
type Needs struct {
	// Scripts names the scripts that the role calls. It is empty for a replica, which calls all.
	Scripts []string
	// Commands names the commands that these scripts and the Go code call, in lower case. Redis
	// checks each command of a script against its caller's rights.
	Commands []string
	// Publishes is true if these scripts publish events of their cell, by PUBLISH or on a cluster
	// by SPUBLISH.
	Publishes bool
	// Names returns the names that the scripts and the Go code use, for an agent, a client of the
	// registry, a reader of lists or a doctor. It is nil for other roles, which use all names under
	// the prefix. of is the id of an agent's node, the name of a reader's list, or AnyNode.
	Names func(l Layout, of string) Names
}

// Names holds patterns of names. Reads are keys that are only read.
type Names struct{ Keys, Reads, Channels []string }
