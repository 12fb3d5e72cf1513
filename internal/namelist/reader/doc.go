// Package reader serves lists to readers without Redis: the routes of package namelist in HTTP. A
// reader holds head, edits and filter itself, and asks about ids that it cannot decide.
//
// A replica follows a list while requests wait for it. It has one subscription a list, and looks
// once a second at all of them, to find what a subscription has lost. Each request reads its answer
// from Redis, so the answer is never older than the request.
package reader
