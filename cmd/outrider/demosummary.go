package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// summariseDemo takes the medians of each arm's rounds.
func summariseDemo(arms []*arm) *demoSummary {
	s := &demoSummary{TextEqual: true, Rounds: len(arms[0].rounds), Text: arms[0].rounds[0].texts}
	byName := map[string]costs{}
	for _, arm := range arms {
		var rounds []costs
		for _, r := range arm.rounds {
			rounds = append(rounds, r.decode.figures())
			s.TextEqual = s.TextEqual && r.equal(arms[0].rounds[0])
		}
		last := arm.rounds[len(arm.rounds)-1]
		middle := medianCosts(rounds)
		byName[arm.name] = middle
		s.Arms = append(s.Arms, demoArm{Name: arm.name, BudgetBytes: last.budget, costs: middle, Direct: last.direct, Fallback: last.reason})
	}
	demand, outrider := byName["demand"], byName["outrider"]
	if demand.StallPerToken > 0 {
		s.StallRatio = outrider.StallPerToken / demand.StallPerToken
	}
	s.HitsGain = 100 * (outrider.Hits - demand.Hits)
	return s
}

// medianCosts takes the median of each figure by itself.
func medianCosts(rounds []costs) costs {
	float := func(figure func(costs) float64) float64 {
		var values []float64
		for _, r := range rounds {
			values = append(values, figure(r))
		}
		slices.Sort(values)
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	count := func(figure func(costs) int64) int64 {
		return int64(float(func(c costs) float64 { return float64(figure(c)) }))
	}
	return costs{
		Tokens:                   count(func(c costs) int64 { return c.Tokens }),
		TokensPerSecond:          float(func(c costs) float64 { return c.TokensPerSecond }),
		StallPerToken:            float(func(c costs) float64 { return c.StallPerToken }),
		Hits:                     float(func(c costs) float64 { return c.Hits }),
		BytesPerToken:            float(func(c costs) float64 { return c.BytesPerToken }),
		DemandReadsPerToken:      float(func(c costs) float64 { return c.DemandReadsPerToken }),
		SpeculativeReadsPerToken: float(func(c costs) float64 { return c.SpeculativeReadsPerToken }),
		Useful:                   count(func(c costs) int64 { return c.Useful }),
		Late:                     count(func(c costs) int64 { return c.Late }),
		Wasted:                   count(func(c costs) int64 { return c.Wasted }),
		Displaced:                count(func(c costs) int64 { return c.Displaced }),
	}
}

func (s *demoSummary) writeTo(w io.Writer) {
	fmt.Fprintln(w)
	for _, t := range s.Text {
		fmt.Fprintf(w, "%-10s %s\n", t.Domain, shorten(t.Prompt+t.Text, 140))
	}
	fmt.Fprintln(w)
	g := newGrid(append([]string{"arm", "budget"}, append(costHeader("")[1:], "reads")...)...)
	for _, arm := range s.Arms {
		cells := arm.cells("")
		cells[0] = bytesText(arm.BudgetBytes)
		g.add(append(append([]string{arm.Name}, cells...), directText(arm.Direct))...)
	}
	g.writeTo(w)
	fmt.Fprintln(w)
	if s.Rounds > 1 {
		fmt.Fprintf(w, "medians of %d rounds, decoding only\n", s.Rounds)
	} else {
		fmt.Fprintln(w, "one round, decoding only")
	}
	if s.TextEqual {
		fmt.Fprintln(w, "texts: equal, token for token, in all arms and rounds")
	} else {
		fmt.Fprintln(w, "texts: DIFFERENT")
	}
	fmt.Fprintf(w, "outrider against demand: %.2f x the stall, %+.1f points of hits\n", s.StallRatio, s.HitsGain)
	for _, arm := range s.Arms {
		if !arm.Direct {
			fmt.Fprintf(w, "reads are buffered (%s): what they cost is the page cache's price, not a drive's; try --dir on a disk\n", arm.Fallback)
			break
		}
	}
}

// shorten puts a text on one line of at most so many characters.
func shorten(text string, most int) string {
	line := strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if utf8.RuneCountInString(line) <= most {
		return line
	}
	return string([]rune(line)[:most-1]) + "…"
}
