//go:build !amd64 && !arm64

package selection

const canPrefetch = false

func prefetch(_, _ **Node, _, _ *Node) {}
