package main

import "github.com/freeslot/freeslot"

// requirementFlags are what decides where a job goes, the same for every command
// that is about a job.
type requirementFlags struct {
	Pool        string            `placeholder:"POOL" help:"Only nodes of this pool."`
	PreferPool  string            `aliases:"preferred-pool" placeholder:"POOL" help:"Nodes of this pool first, then the other fitting nodes."`
	AlsoService []string          `sep:"none" placeholder:"SERVICE" help:"Further service that the node must have, with an optional range of versions, such as 'asr@>=1.2 <2'. Can be repeated."`
	Source      string            `aliases:"source-language" placeholder:"LANG" help:"Language that the node must understand, such as de or zh-Hant-TW."`
	Target      string            `aliases:"target-language" placeholder:"LANG" help:"Language that the node must produce."`
	Label       map[string]string `mapsep:"," placeholder:"NAME=VALUE" help:"Label that the node must have. Can be repeated."`
	LabelRule   []labelRule       `sep:"none" placeholder:"RULE" help:"Comparison that must hold for a label: 'gpu in A100,H100', 'zone not_in eu-1', 'gpu exists', 'gpu not_exists', or a number: 'ram_gb ge 64' (gt, ge, lt, le). Can be repeated."`
	AffinityKey string            `placeholder:"KEY" help:"Jobs with the same key go to the same node while that has room."`
	Slots       int               `placeholder:"N" help:"Slots that the job takes (default 1)."`
}

// job is a job of the service with what the flags say, not validated.
func (f *requirementFlags) job(service string) *freeslot.Job {
	return &freeslot.Job{
		Service: service, Slots: f.Slots, AffinityKey: f.AffinityKey,
		Requirement: freeslot.Requirement{
			Pool: f.Pool, PreferredPool: f.PreferPool, Services: f.AlsoService,
			SourceLanguage: f.Source, TargetLanguage: f.Target, Labels: f.Label, LabelRules: labelRules(f.LabelRule),
		},
	}
}
