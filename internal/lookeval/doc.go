// Package lookeval measures what a look-ahead is worth: a model's routers applied
// to the hidden states of layers before theirs, alone and joined with the
// forecast from router history, on recorded states and choices.
package lookeval
