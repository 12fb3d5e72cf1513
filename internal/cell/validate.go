package cell

import "github.com/freeslot/freeslot"

// Everything that becomes part of a key, of an event or of a value with separators is checked
// before Redis is asked. The errors are *freeslot.Errors with code invalid_argument.

func validateAgent(node string, epoch Epoch) error {
	if err := freeslot.ValidateName("node_id", node); err != nil {
		return err
	}
	return freeslot.ValidateName("epoch", epoch)
}

func validateReplica(replica string) error { return freeslot.ValidateName("replica", replica) }
