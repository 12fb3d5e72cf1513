// Package console tests the console in a real browser: headless Chromium, driven over its debugging
// protocol, against real replicas on a real Redis. A test finds things as a user does, by their
// role and name in the accessibility tree, and waits for a push that the page has drawn.
//
// A test that fails leaves a picture, the document, the browser's log and the requests under
// .dev/console-test.
//
// Files that begin with rig_ start and drive processes and the browser, and hold no tests.
package console
