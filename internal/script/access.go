package script

// Role is what a process is to the system, and so what it needs in Redis.
type Role string

// The roles.
const (
	// RoleAgent speaks for a node. It calls scripts by their hashes alone, on the keys of its node.
	RoleAgent Role = "agent"
	// RoleReplica is a scheduler. It loads and calls all scripts, on all keys under the prefix.
	RoleReplica Role = "replica"
	// RoleOperator imports nodes, and looks at what is there, under the prefix.
	RoleOperator Role = "operator"
	// RoleLock takes locks, under the prefix of locks.
	RoleLock Role = "lock"
	// RoleRegistry registers instances of services and follows services, under the prefix.
	RoleRegistry Role = "registry"
	// RoleListReader answers from lists of names, all or given ones, and reports what it has loaded.
	RoleListReader Role = "list-reader"
)

// Roles are all of them.
var Roles = []Role{RoleAgent, RoleReplica, RoleOperator, RoleLock, RoleRegistry, RoleListReader}

// AnyNode stands for every node where an agent's node is asked for, and for every list of a reader.
const AnyNode = "*"

// Access is what one feature needs in Redis. Package acl makes users of Redis out of those of all
// features, and scripttest.CheckAccess holds it against the scripts and the Go code of the feature.
type Access struct {
	// Scripts are all scripts of the feature.
	Scripts Set
	// Roles that are not in it need nothing.
	Roles map[Role]Needs
}

// Needs is what one role needs for a feature.
type Needs struct {
	// Scripts are the names of those that the role calls. A replica calls all and leaves it empty.
	Scripts []string
	// Commands are those that these scripts and the Go code call, in lower case. Redis asks for a
	// script's commands whether its caller may call them.
	Commands []string
	// Publishes is true where these scripts publish events of their cell: by PUBLISH, or by
	// SPUBLISH on a cluster.
	Publishes bool
	// Names are what the scripts and the Go code of an agent, a registry's client or a reader of
	// lists use. Other roles leave it out: theirs are all names under the prefix. of is the id of an
	// agent's node, the name of a reader's list, or AnyNode.
	Names func(l Layout, of string) Names
}

// Names are patterns of names. Reads are keys that are only read.
type Names struct{ Keys, Reads, Channels []string }
