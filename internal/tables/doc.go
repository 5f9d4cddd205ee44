// Package tables sets tables and figures for people who read them in a terminal.
//
// What a writer answers is not looked at: print into a buffer. Nothing here is safe for
// concurrent use.
package tables
