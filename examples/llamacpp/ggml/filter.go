package ggml

import (
	"sync/atomic"
	"unsafe"
)

// Filter answers the scheduler's question of each node of a graph, "do you need this
// one's data?", and passes those on behind which a layer's experts are computed: the
// gate weights of the chosen experts. llama.cpp asks for some fifty nodes a layer; a call
// into Go for each would cost a small model more than what it is to gain. So the question
// is answered in assembly where there is some for the machine, without entering Go.
//
// A filter must stay at its address, and reachable, while a context that calls it
// lives: make it with NewFilter.
type Filter struct {
	callback uintptr // of Go: func(t *Tensor, ask bool, f *Filter) bool
	pass     atomic.Uint32
	_        uint32
	User     uintptr // for the callback; the filter does not look at it
}

// Pass is what a filter passes on.
type Pass uint32

const (
	PassNothing Pass = iota // a graph is computed in one piece, as without a callback
	PassWeights             // the nodes of gate weights
	PassAll                 // the question of every node
)

// NewFilter makes a filter in front of a callback made with purego.NewCallback, which
// gets the filter as its user data. It passes the nodes of gate weights.
func NewFilter(callback, user uintptr) *Filter {
	f := &Filter{callback: callback, User: user}
	f.Set(PassWeights)
	return f
}

// Set says what is passed on. Not to be called while a graph is computed.
func (f *Filter) Set(p Pass) { f.pass.Store(uint32(p)) }

// Callback and UserData are what llama.cpp is given (cb_eval, cb_eval_user_data).
func (f *Filter) Callback() uintptr {
	if filterAddress != 0 {
		return filterAddress
	}
	return f.callback
}

// UserData is the filter itself.
func (f *Filter) UserData() uintptr { return uintptr(unsafe.Pointer(f)) }

// Wants answers the question in Go: what the assembly does, for machines that have none.
func (f *Filter) Wants(t *Tensor) bool {
	switch Pass(f.pass.Load()) {
	case PassNothing:
		return false
	case PassAll:
		return true
	}
	return string(t.name[:len(WeightsNode)]) == WeightsNode && t.Sources[1] != nil
}

// WeightsNode begins the name of the node that holds the gate weights of the chosen
// experts (build_moe_ffn in llama-graph.cpp); the number of the block follows. It has two
// sources, probabilities and choice; its other forms have the same name, and one.
const WeightsNode = "ffn_moe_weights-"
