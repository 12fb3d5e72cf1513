// Package pagetest checks doc pages against the code: examples that tests replay, and AsyncAPI
// descriptions.
package pagetest
