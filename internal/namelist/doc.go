// Package namelist keeps lists of ids on Redis: records, versions, edits and states on a control
// server, segments and filters on list servers. docs/design/namelist.md describes words, keys,
// scripts and events.
//
//   - Control makes, changes and reads lists; states.go says what each state allows.
//   - Package form says what an id is, and where it is: hash, segment, block.
//   - Package filter is the prefilter and its wire form.
//   - Package chain decides by rules over lists.
//   - Package build makes versions from files and from other versions.
//   - Package manage does the work of a replica: uploads, builds, switches, compaction, removal of
//     keys that builds have left, export and diff.
//   - Package operator has the HTTP routes of operators, package reader the routes of programs that
//     ask lists by HTTP. Package oracle tests all parts together.
//   - Package namelist at the root of the module is what services use.
package namelist
