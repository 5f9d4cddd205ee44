package gain

import (
	"fmt"
	"math"
	"slices"
)

// Verdict says whether a store is worth building.
type Verdict string

// What a forecast may come to.
const (
	Pays      Verdict = "pays"
	PaysNot   Verdict = "does not pay"
	Uncertain Verdict = "uncertain" // the rounds disagree
)

// worth is the gain from which a store pays: below it, copying a model of many
// gigabytes buys less than the differences between two runs.
const worth = 1.1

// leastRounds are needed for quartiles that mean something.
const leastRounds = 5

// nearRaw is the share of the raw rate from which little can be gained at all.
const nearRaw = 0.9

// Result is what was measured, and what follows.
type Result struct {
	Sample  Sample `json:"sample"`
	InPlace Arm    `json:"in_place"`
	Store   Arm    `json:"store"`
	Depth   int    `json:"depth"` // reads of experts at once
	// RawBytesPerSecond is what the drive gives to large reads at random places, in
	// the same rounds.
	RawBytesPerSecond float64 `json:"raw_bytes_per_second"`
	RawBlockBytes     int64   `json:"raw_block_bytes"`
	RawDepth          int     `json:"raw_depth"`
	Rounds            int     `json:"rounds"`
	// Gain is the time of a batch in place over that from the store.
	Gain Quartiles `json:"gain"`
	// Again is the time of the first round's batches in place when repeated in the
	// end, over that of the first time: far from 1, the drive itself has changed.
	Again   float64 `json:"in_place_again"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
	// SameDrive: the checkpoint lies on the drive of the store. Where it does not,
	// the gain is also that of one drive over the other. False also where the system
	// does not say.
	SameDrive bool `json:"same_drive"`

	// StoreBytes is what a store of the whole checkpoint takes, without index.
	// BuildSeconds is a rough guess, by what the sample took; TokensToPay is how
	// many tokens without anything in memory win that time back, 0 if none do.
	StoreBytes   int64   `json:"store_bytes"`
	BuildSeconds float64 `json:"build_seconds"`
	TokensToPay  float64 `json:"tokens_to_pay"`
}

// Sample is what was read.
type Sample struct {
	Layers  int   `json:"layers"`
	Experts int   `json:"experts"` // of each layer
	Batch   int   `json:"batch"`   // experts that are asked for at once
	Bytes   int64 `json:"bytes"`   // of tensors
}

// Arm is one way to lie. Figures of a token are those of one whose experts are all
// read, and none foreseen: divide by what the cache misses.
type Arm struct {
	ReadsPerExpert float64 `json:"reads_per_expert"`
	ReadsPerToken  float64 `json:"reads_per_token"`
	BytesPerToken  float64 `json:"bytes_per_token"`
	// BytesPerSecond counts bytes of tensors only, while batches are read one after
	// the other: the median of the rounds. ShareOfRaw is that over the raw rate of
	// the same round.
	BytesPerSecond float64 `json:"bytes_per_second"`
	ShareOfRaw     float64 `json:"share_of_raw"`
	StallPerToken  float64 `json:"stall_s_per_token"`
	Direct         bool    `json:"direct"`
	Fallback       string  `json:"fallback,omitempty"` // why reads are buffered
	Engine         string  `json:"engine"`
}

// Quartiles are of the rounds.
type Quartiles struct {
	Low    float64 `json:"low"`
	Median float64 `json:"median"`
	High   float64 `json:"high"`
}

func quartilesOf(values []float64) Quartiles {
	sorted := slices.Sorted(slices.Values(values))
	at := func(share float64) float64 { return sorted[int(math.Round(share*float64(len(sorted)-1)))] }
	return Quartiles{Low: at(0.25), Median: at(0.5), High: at(0.75)}
}

// conclude works out rates, gain and verdict from the rounds; the reads and bytes of
// a token are there already. tensors is what a token's experts have.
func (r *Result) conclude(rounds []round, tensors float64) {
	var gain, raw []float64
	rates, shares := [2][]float64{}, [2][]float64{}
	for _, d := range rounds {
		gain = append(gain, d.inPlace.Seconds()/d.store.Seconds())
		raw = append(raw, d.raw)
		for i, took := range []float64{d.inPlace.Seconds(), d.store.Seconds()} {
			rate := float64(d.bytes) / took
			rates[i], shares[i] = append(rates[i], rate), append(shares[i], rate/d.raw)
		}
	}
	r.Rounds, r.Gain, r.RawBytesPerSecond = len(rounds), quartilesOf(gain), quartilesOf(raw).Median
	for i, arm := range []*Arm{&r.InPlace, &r.Store} {
		arm.BytesPerSecond, arm.ShareOfRaw = quartilesOf(rates[i]).Median, quartilesOf(shares[i]).Median
		arm.StallPerToken = tensors / arm.BytesPerSecond
	}
	r.judge()
	if saved := r.InPlace.StallPerToken - r.Store.StallPerToken; saved > 0 {
		r.TokensToPay = r.BuildSeconds / saved
	}
}

func (r *Result) judge() {
	g := r.Gain
	fewer := fmt.Sprintf("%s of an expert instead of %s", readsText(r.Store.ReadsPerExpert), readsText(r.InPlace.ReadsPerExpert))
	switch {
	case r.Rounds < leastRounds:
		r.Verdict, r.Reason = Uncertain, fmt.Sprintf("only %d of %d rounds fitted into the time: allow more, or less space", r.Rounds, leastRounds)
	case g.Low >= worth:
		r.Verdict, r.Reason = Pays, fmt.Sprintf("batches come %.2f times as fast, with %s", g.Median, fewer)
	case g.High >= worth:
		r.Verdict, r.Reason = Uncertain, fmt.Sprintf("half of the rounds lie between %.2f and %.2f times as fast: measure again while the drive has nothing else to do, or for longer", g.Low, g.High)
	case r.InPlace.ShareOfRaw >= nearRaw:
		r.Verdict, r.Reason = PaysNot, fmt.Sprintf("in place already reaches %.0f %% of the raw rate: its reads are few and large", 100*r.InPlace.ShareOfRaw)
	default:
		r.Verdict, r.Reason = PaysNot, fmt.Sprintf("batches come %.2f times as fast, with %s: on this drive that is too little to matter", g.Median, fewer)
	}
}

func readsText(n float64) string {
	if math.Abs(n-1) < 0.005 {
		return "1 read"
	}
	return fmt.Sprintf("%.3g reads", n)
}
