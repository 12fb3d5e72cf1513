// Package console serves the page for operators at /console/: the files of the page, and what only
// the page needs. Everything else that the page shows or does goes through the routes of package
// api.
//
// The files in dist are built from the folder console at the root of the repository. Their
// addresses have a hash of their contents, so that browsers keep them for ever and still get new
// ones with a new release. All addresses in the page are relative, so a proxy may put any path
// before them.
//
// Its own are the sign-in (a token or an OpenID provider, for a sealed cookie whose key replicas
// share) and the live updates over one WebSocket a page. A hub computes a topic once for all pages
// that want it, and only while one does.
//
// # What happens on failure
//
// While a cell or Redis is away a topic says so, with the time of its last data, and the page keeps
// that. A page that stops reading has one pending message a topic, and is cut off after ten
// seconds. Sessions outlive Redis: the last two keys are in memory.
package console
