//go:build race

package main

// raced: everything takes several times as long.
const raced = true
