//go:build !linux

package main

func bound(f func()) error {
	f()
	return nil
}

const canBind = false
