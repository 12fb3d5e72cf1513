//go:build !linux || (!amd64 && !arm64) || nogpu

package gpu

func open(string) (library, bool) { return nil, false }
