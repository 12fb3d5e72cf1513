//go:build !linux

package main

func bound(func()) bool { return false }
