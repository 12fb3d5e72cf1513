// Package cgroup bounds the memory, the CPU time and the number of processes of a command
// by a control group of its own, and ends whatever the command has left in it.
//
// A [Manager] has one directory in each hierarchy that it uses, below the cgroup of its own
// process, and in it one [Group] for each command:
//
//	v2   <own cgroup>/freeslot-agent                  the process itself, moved there
//	     <own cgroup>/freeslot-jobs-<random>/<group>
//	v1   <memory>/<own cgroup>/freeslot-jobs-<random>/<group>, the same under <cpu> and <pids>
//
// Guarantees: a command is in its group before it runs an instruction of its own. In v2 the
// kernel starts it there; in v1 it is stopped at its exec, by ptrace, until it has been moved.
// Whatever it starts is in the group too, also what leaves its process group or session, and
// [Group.Kill] ends all of it. A process with the right to write to cgroups can leave.
//
// A directory is locked (flock) for as long as its owner lives. Open removes those that it can
// lock, with all processes in them: their owner was killed.
package cgroup
