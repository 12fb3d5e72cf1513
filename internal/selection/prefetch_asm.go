//go:build amd64 || arm64

package selection

const canPrefetch = true

// prefetch sends for the cache lines of two places in a list and of two nodes' figures. An
// instruction of its own, since a plain read would keep what comes after it waiting.
//
//go:noescape
func prefetch(p, q **Node, a, b *Node)
