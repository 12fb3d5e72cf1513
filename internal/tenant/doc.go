// Package tenant tells what tenants may do and what they do: GET /v1/tenants.
//
//   - Limits come from the configuration of the replica that answers.
//   - Running and waiting jobs come from the sets of Redis that limits count in. A tenant without
//     such a limit has no set, and its jobs are not counted: counting would cost each job a
//     command.
//   - Rates come from all replicas. A [Meter] counts what its replica is asked for, and the replica
//     tells its busiest tenants with its status (package presence).
package tenant
