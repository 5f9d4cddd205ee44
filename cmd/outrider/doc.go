// Command outrider turns mixture-of-experts checkpoints into stores, checks
// them, runs a small reference model over them, replays routing traces, measures and
// trains forecasts on them, and measures drives and what is read from them.
//
//	main.go           arguments in, exit status out
//	app.go            where a command writes: text or one JSON object
//	exit.go           errors to exit statuses and one-line messages
//	size.go           sizes as text, and "PATH:WEIGHT"
//	plot.go           pictures into files
//	progress.go       a bar, or a line now and then, for what takes long
//	measure.go        what a generation cost, from runtime.Stats
//	model.go          opening a store or a checkpoint
//	readflags.go      how weights are read: engine, depth, block
//	recording.go      opening routing data of any form
//	forecastfile.go   a forecast kept from one run to the next
//	networkfile.go    a trained network, written and read back
//	replacefile.go    a file made whole or not at all
//
// Each command has a file of its own, named for it, and more with that name in
// front where it is long: evaluate.go has the flags and the flow, evaluateentries.go
// what is measured, evaluatelook.go look-ahead, evaluateresult.go the tables and
// evaluateplot.go the picture. A command's struct holds its flags; Run does the work
// with the packages a library user has, and prints.
//
// Nothing here is safe for concurrent use but progress.
package main
