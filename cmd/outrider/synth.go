package main

// synthCmds make checkpoints that nobody has to download.
type synthCmds struct {
	// one line a command
}
