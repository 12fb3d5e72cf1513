// Package pagetest holds pages of docs against the code: examples that tests replay, and AsyncAPI
// descriptions.
package pagetest
