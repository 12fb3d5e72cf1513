// Package oracle has the test that compares all answers of clients with a map while the list
// changes.
package oracle
