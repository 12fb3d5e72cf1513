//go:build !unix

package replica

import "time"

// cpuTime returns 0: the processor time of this process is not known.
func cpuTime() time.Duration { return 0 }
