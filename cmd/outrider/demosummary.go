package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"outrider/internal/costs"
	"outrider/internal/tables"
)

// summariseDemo sums up each arm's rounds, the warm-up apart.
func summariseDemo(arms []*arm) *demoSummary {
	s := &demoSummary{TextEqual: true, Rounds: len(arms[0].rounds) - 1, Text: arms[0].rounds[0].texts}
	for _, arm := range arms {
		var counted []costs.Cost
		for i, r := range arm.rounds {
			if i > 0 {
				counted = append(counted, r.decode...)
			}
			s.TextEqual = s.TextEqual && r.equal(arms[0].rounds[i])
		}
		s.Arms = append(s.Arms, demoArm{Name: arm.name, Figures: textCosts(counted), WarmUp: textCosts(arm.rounds[0].decode)})
		if arm.runtime != nil {
			stats, last := arm.runtime.Stats(), &s.Arms[len(s.Arms)-1]
			last.BudgetBytes = stats.Memory.Budget
			last.Direct, last.Fallback = lanesRead(stats)
		}
	}
	demand, outrider := s.Arms[1], s.Arms[2]
	s.StallRatio, s.HitsGain = compareCosts(outrider.Figures, demand.Figures)
	s.WarmUpStallRatio, s.WarmUpHitsGain = compareCosts(outrider.WarmUp, demand.WarmUp)
	return s
}

// compareCosts is what a has of b's stall, and how many points of hits it has more.
func compareCosts(a, b costs.Figures) (stallRatio, hitsGain float64) {
	if b.StallPerToken > 0 {
		stallRatio = a.StallPerToken / b.StallPerToken
	}
	return stallRatio, 100 * (a.Hits - b.Hits)
}

// textCosts sums up what some texts cost. Speed and stall are medians over the
// texts, so that what else the machine did during one of them does not count.
func textCosts(texts []costs.Cost) costs.Figures {
	var all costs.Cost
	var speed, stall []float64
	for _, text := range texts {
		all.Add(text)
		f := text.Figures()
		speed, stall = append(speed, f.TokensPerSecond), append(stall, f.StallPerToken)
	}
	sum := all.Figures()
	sum.TokensPerSecond, sum.StallPerToken = median(speed), median(stall)
	return sum
}

// median sorts the values; of an even number it is the mean of the middle two.
func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func (s *demoSummary) writeTo(w io.Writer) {
	fmt.Fprintln(w)
	for _, t := range s.Text {
		fmt.Fprintf(w, "%-10s %s\n", t.Domain, shorten(t.Prompt+t.Text, 140))
	}
	fmt.Fprintln(w)
	g := tables.NewGrid(append([]string{"arm", "budget"}, append(costHeader("")[1:], "reads")...)...)
	for _, arm := range s.Arms {
		cells := costCells("", arm.Figures)
		cells[0] = bytesText(arm.BudgetBytes)
		g.Add(append(append([]string{arm.Name}, cells...), directText(arm.Direct))...)
	}
	g.Print(w)
	fmt.Fprintln(w)
	fmt.Fprintf(w, "decoding only, after one round of warm-up: %d rounds of %d texts; speed and stall are medians over the texts\n", s.Rounds, len(s.Text))
	if s.TextEqual {
		fmt.Fprintln(w, "texts: equal, token for token, in all arms and rounds")
	} else {
		fmt.Fprintln(w, "texts: DIFFERENT")
	}
	fmt.Fprintf(w, "outrider against demand: %.2f x the stall, %+.1f points of hits (warm-up: %.2f x, %+.1f)\n",
		s.StallRatio, s.HitsGain, s.WarmUpStallRatio, s.WarmUpHitsGain)
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
