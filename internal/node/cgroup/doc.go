// Package cgroup limits the memory, the CPU time and the number of processes of a command by a
// control group of its own, and ends the processes that the command has left in it. It also finds
// the groups of this process, for package collector.
//
// A [Manager] has one directory in each hierarchy that it uses, below the cgroup of its own
// process, and in it one [Group] for each command:
//
//	v2   <own cgroup>/freeslot-agent                  the process itself, moved there
//	     <own cgroup>/freeslot-jobs-<random>/<group>
//	v1   <memory>/<own cgroup>/freeslot-jobs-<random>/<group>, the same under <cpu> and <pids>
//
// Guarantees: a command is in its group before it runs an instruction of its own. In v2 the kernel
// starts it there. In v1 ptrace stops it at its exec until it has been moved. Every process that it
// starts is in the group too, even one that leaves its process group or session, and [Group.Kill]
// ends all of them. A process with the right to write to cgroups can leave.
//
// A directory is locked (flock) while its owner lives. Open removes directories that it can lock,
// with all processes in them: their owner was killed.
package cgroup
