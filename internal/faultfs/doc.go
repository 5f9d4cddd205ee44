// Package faultfs puts faults into a layout.FS or layout.WriteFS on purpose,
// for tests: errors, short and silent reads, flipped bits, delays, calls that
// hang until they are released. It counts all calls.
//
// A Rule chooses calls by operation, file name and number. Rules are asked in
// order; every rule that fits counts the call, and the first one whose range
// holds the count acts. Delays use time.Sleep, and hanging calls wait on a
// channel, so that both work in a testing/synctest bubble; make the FS inside
// the bubble then. The mutex guards rules and counts only, never a call.
package faultfs
