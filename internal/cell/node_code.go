package cell

// What scripts return instead of a revision or an answer.
const (
	// codeUnknownNode: no node of this name is registered.
	codeUnknownNode = -1
	// codeSuperseded: the node has another epoch.
	codeSuperseded = -2
	// codeStaleConnection: the agent has a later connection. Only gateways get it.
	codeStaleConnection = -3
	// codeNodeInUse: the node lives under another token. Only gateways get it.
	codeNodeInUse = -6
)
