// Package docker runs Redis in containers, for tests to which a process of redistest is not enough:
// a network of its own that can be cut, and the effects of a container runtime on a server.
//
// The image is made from the host's redis-server and its shared libraries, so that no registry is
// needed and the version is the one that all other tests use. FREESLOT_TEST_REDIS_IMAGE names an
// image to use instead (redis:7.4), which is pulled if it is missing.
//
// The tests fail if no engine answers. A developer without one sets FREESLOT_NO_DOCKER=1, and they
// are skipped.
package docker
