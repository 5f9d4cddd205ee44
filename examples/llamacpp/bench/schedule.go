package main

import (
	"fmt"
	"slices"
)

// The arms.
const (
	resident = "resident"
	mmap     = "mmap"
	demand   = "demand"
	outrider = "outrider"
)

func streams(arm string) bool { return arm == demand || arm == outrider }

// What a run is for.
const (
	speed   = "speed"   // decoding given text
	prefill = "prefill" // a long prompt at once
	equal   = "equal"   // greedy texts
)

// prompts are gone on from to compare texts.
var prompts = []string{
	"The history of the old town begins",
	"func main() {\n\tnames := []string{",
	"\"Where have you been?\" she asked. He",
}

// step is a run of outrider-llama, or a slice of raw reads where Arm is "".
type step struct {
	Purpose string `json:"purpose"`
	Round   int    `json:"round"`
	Arm     string `json:"arm"`
	Budget  string `json:"budget,omitempty"` // as it was given; in whose group an arm without one runs
	WarmUp  int    `json:"warm_up,omitempty"`
	Tokens  int    `json:"tokens"`
	Prompt  int    `json:"prompt,omitempty"` // its number, or its length for prefill
	Limit   int64  `json:"limit_bytes,omitempty"`

	amount string // --budget
}

// String names it in messages.
func (s step) String() string {
	t := fmt.Sprintf("%s, %s", s.Purpose, s.Arm)
	if s.Budget != "" {
		t += " at " + s.Budget
	}
	if s.Purpose == equal {
		return fmt.Sprintf("%s, prompt %d", t, s.Prompt+1)
	}
	return fmt.Sprintf("%s, round %d", t, s.Round+1)
}

// megabyte is what the figures are in.
const megabyte = 1e6

const (
	limitExtra = 128 * megabyte // of the memory limit, beside dense weights and budget
	peakExtra  = 64 * megabyte  // of the memory that a streaming arm may have
	reference  = "25%"          // the budget that most demands are about
	floorName  = "floor"
)

// model is what the schedule must know of it.
type model struct {
	DenseBytes  int64 `json:"dense_bytes"`
	ExpertBytes int64 `json:"expert_bytes"`
	FloorBytes  int64 `json:"floor_bytes"` // least budget
	limited     bool  // memory limits can be set
}

// limit is that of an arm, 0 for none.
func (m model) limit(arm string, b budget) int64 {
	if arm == resident || !m.limited {
		return 0
	}
	return m.DenseBytes + b.of(m.ExpertBytes) + limitExtra
}

// speedSteps lets the arms take turns: each budget has its own run of the resident
// arm, next to those that are compared with it; every other round goes backwards, so
// that no arm always comes behind the same one. The first is repeated at the end.
func (c *command) speedSteps(m model) []step {
	var all []step
	for round := range c.Rounds {
		var steps []step
		for _, b := range c.Budgets {
			for _, arm := range []string{resident, mmap, demand, outrider} {
				s := step{Purpose: speed, Round: round, Arm: arm, Budget: b.text, WarmUp: c.WarmUp, Tokens: c.Tokens, Limit: m.limit(arm, b), amount: b.text}
				if arm == mmap {
					s.Tokens, s.WarmUp = c.MmapTokens, min(c.WarmUp, c.MmapTokens)
				}
				steps = append(steps, s)
			}
		}
		steps = append(steps, c.prefillSteps(m, round)...)
		if round%2 == 1 {
			slices.Reverse(steps)
		}
		all = append(all, steps...)
	}
	last := all[0]
	last.Round = c.Rounds
	all = append(all, last)
	if !m.limited {
		all = slices.DeleteFunc(all, func(s step) bool { return s.Arm == mmap })
	}
	return withRaw(all)
}

func (c *command) prefillSteps(m model, round int) (steps []step) {
	if c.PrefillTokens == 0 {
		return nil
	}
	var b budget
	if b.UnmarshalText([]byte(reference)) != nil {
		return nil
	}
	for _, arm := range []string{mmap, demand, outrider} {
		steps = append(steps, step{Purpose: prefill, Round: round, Arm: arm, Budget: reference, Tokens: 1,
			Prompt: c.PrefillTokens, Limit: m.limit(arm, b), amount: reference})
	}
	return steps
}

// withRaw puts a slice of raw reads before and behind every streaming arm.
func withRaw(steps []step) (out []step) {
	for _, s := range steps {
		measured := s.Purpose == speed && streams(s.Arm)
		if measured && (len(out) == 0 || out[len(out)-1].Arm != "") {
			out = append(out, step{Purpose: speed, Round: s.Round})
		}
		out = append(out, s)
		if measured {
			out = append(out, step{Purpose: speed, Round: s.Round})
		}
	}
	return out
}

// equalSteps are texts that must be equal, the first of each prompt by llama.cpp with
// all weights in memory. No speed is taken of them, so nothing is limited.
func (c *command) equalSteps(m model) (steps []step) {
	if c.EqualTokens == 0 {
		return nil
	}
	for p := range prompts {
		add := func(arm, name, amount string) {
			steps = append(steps, step{Purpose: equal, Arm: arm, Budget: name, Tokens: c.EqualTokens, Prompt: p, amount: amount})
		}
		add(resident, "", "")
		add(mmap, "", "")
		for _, arm := range []string{demand, outrider} {
			add(arm, floorName, fmt.Sprint(m.FloorBytes))
			add(arm, reference, reference)
			add(arm, "100%", "100%")
		}
	}
	return steps
}
