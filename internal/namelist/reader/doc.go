// Package reader serves lists to readers that have no Redis: the routes of package namelist by
// HTTP. A reader holds head, edits and filter itself, and asks for what it cannot decide.
//
// A replica follows a list while requests wait for it: one subscription a list, and one look a
// second at all of them, which finds what a subscription has lost. Answers are read from Redis at
// each request, so that they are never older than the request.
package reader
