// Package centre is the part of a replica that tends the service registry. Each replica asks Redis
// to clean up services, and Redis lets one of them through. Instances that want active checks are
// shared among the replicas by rendezvous hashing.
//
// A registration names only the kind and the path of its check. The target is always the instance's
// own host and port, and must be in one of the networks that the configuration allows.
//
// A replica that sees many of its targets fail at once may itself be cut off. It then asks another
// replica, and delays its verdicts until that replica sees the same.
package centre
