package main

// synthCmds make checkpoints that nobody has to download.
type synthCmds struct {
	Checkpoint synthCheckpointCmd `cmd:"" help:"Make a small checkpoint with the names, shapes and types of a model family."`
	Families   synthFamiliesCmd   `cmd:"" help:"List the families that checkpoints can be made of."`
	Widen      synthWidenCmd      `cmd:"" help:"Enlarge a small MoE model without changing what it computes."`
}
