// Command outrider turns mixture-of-experts checkpoints into stores, checks
// them, runs a small reference model over them, and replays routing traces.
//
//	main.go       arguments in, exit status out
//	app.go        where a command writes: text or one JSON object
//	exit.go       errors to exit statuses and one-line messages
//	size.go       "25%", "512MiB"
//	table.go      tables and figures
//	progress.go   a bar, or a line now and then, for what takes long
//	measure.go    what a generation cost, from runtime.Stats
//	model.go      opening a store or a checkpoint
//
// Each command has a file of its own. A command's struct holds its flags; Run
// does the work with the packages a library user has, and prints.
//
// Nothing here is safe for concurrent use but progress.
package main
