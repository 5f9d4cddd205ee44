// Package lint holds tests over the source tree itself: which package may
// import which, and how large a file may grow.
package lint
