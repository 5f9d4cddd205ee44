package prefetcher

import (
	"math"
	"testing"
)

func TestAdmit(t *testing.T) {
	tests := []struct {
		name      string
		p         float32
		neededBy  int64 // the step executing is 10
		ahead     int
		threshold float64
		readSteps float64
		want      bool
	}{
		{"likely and soon", 0.8, 11, 0, 0.5, 0.25, true},
		{"under the threshold", 0.4, 11, 0, 0.5, 0.25, false},
		{"at the threshold", 0.5, 11, 0, 0.5, 0.25, true},
		{"those before fill the time exactly", 0.8, 11, 3, 0.5, 0.25, true},
		{"half done when needed", 0.8, 11, 0, 0.4, 2, true},
		{"less than half done when needed", 1, 11, 0, 0, 2.1, false},
		{"behind too many", 0.8, 11, 5, 0.1, 0.25, false},
		{"behind as many, but needed later", 0.8, 12, 5, 0.1, 0.25, true},
		{"needed now", 1, 10, 0, 0, 0.25, false},
		{"needed in the past", 1, 3, 0, 0, 0.25, false},
		{"read time not known", 0.8, 11, 1000, 0.5, 0, true},
		{"probability is not a number", float32(math.NaN()), 11, 0, 0.1, 0.25, false},
	}
	for _, tt := range tests {
		a := Admission{Step: 10, Threshold: tt.threshold, ReadSteps: tt.readSteps}
		if got := a.Admit(Candidate{P: tt.p, NeededBy: tt.neededBy}, tt.ahead); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestEarliestIsTheFirstStepAdmitted(t *testing.T) {
	for _, readSteps := range []float64{0, 0.1, 1, 2, 2.1, 3.9, 4, 17} {
		a := Admission{Step: 10, ReadSteps: readSteps}
		got := a.Earliest()
		if !a.Admit(Candidate{P: 1, NeededBy: got}, 0) || a.Admit(Candidate{P: 1, NeededBy: got - 1}, 0) {
			t.Errorf("ReadSteps %v: got earliest %d, which is not the first step admitted", readSteps, got)
		}
	}
	if got := (Admission{ReadSteps: math.Inf(1)}).Earliest(); got <= 0 {
		t.Errorf("endless read: got earliest %d, want a large step", got)
	}
}

func TestExpect(t *testing.T) {
	tests := []struct {
		p        float32
		neededBy int64
		want     float64
	}{
		{1, 13, 3}, {0.5, 13, 27}, {0.25, 11, 73}, {2, 11, 1}, {1, 5, 0},
	}
	for _, tt := range tests {
		if got := (Candidate{P: tt.p, NeededBy: tt.neededBy}).Expect(10, 24); got != tt.want {
			t.Errorf("p %v by %d: got %v, want %v", tt.p, tt.neededBy, got, tt.want)
		}
	}
	for _, p := range []float32{0, -1, float32(math.NaN())} {
		if got := (Candidate{P: p, NeededBy: 11}).Expect(10, 24); !(got > 1e6) || math.IsInf(got, 0) {
			t.Errorf("p %v: got %v, want a large finite number", p, got)
		}
	}
}
