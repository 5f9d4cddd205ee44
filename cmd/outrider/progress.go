package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	progressAfter = 2 * time.Second // what is shorter needs no progress
	progressEvery = 5 * time.Second // between lines where there is no terminal
)

// inBytes is the unit that is shown with prefixes.
const inBytes = "bytes"

// progress tells on stderr how far something is, once it takes long: a bar on a
// terminal, a line now and then elsewhere, nothing with --json. Safe for
// concurrent use.
type progress struct {
	out      io.Writer // nil: silent
	terminal bool
	unit     string // of what is counted: "tokens", inBytes
	what     string
	now      func() time.Time
	began    time.Time

	mu   sync.Mutex
	bar  *progressbar.ProgressBar
	last time.Time // of the latest line
	most int64
}

// progress starts to watch something that is counted in a unit.
func (a *app) progress(what, unit string) *progress {
	p := &progress{what: what, unit: unit, now: a.now, began: a.now()}
	if a.json {
		return p
	}
	p.out = a.stderr
	if f, ok := a.stderr.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// set tells how much is done. Calls may overtake each other.
func (p *progress) set(done, total int64) {
	now := p.now()
	if p.out == nil || now.Sub(p.began) < progressAfter || total <= 0 {
		return
	}
	bar, line := p.next(now, done, total)
	if bar != nil {
		_ = bar.Set64(done) // what it shows is all that could be lost
	}
	if line != "" {
		fmt.Fprintln(p.out, line)
	}
}

// count tells how much is done of something whose end is not known.
func (p *progress) count(done int64) {
	now := p.now()
	spent := now.Sub(p.began)
	if p.out == nil || spent < progressAfter {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.last) >= progressEvery {
		p.last = now
		fmt.Fprintf(p.out, "%s: %s %s, %s/s\n", p.what, humanize.Comma(done), p.unit, rateText(float64(done)/spent.Seconds()))
	}
}

// next decides what is to be shown: a bar's state, a line, or nothing.
func (p *progress) next(now time.Time, done, total int64) (*progressbar.ProgressBar, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if done < p.most {
		return nil, ""
	}
	p.most = done
	if p.terminal {
		if p.bar == nil {
			p.bar = p.newBar(total)
		}
		return p.bar, ""
	}
	if now.Sub(p.last) < progressEvery {
		return nil, ""
	}
	p.last = now
	return nil, p.line(now.Sub(p.began), done, total)
}

func (p *progress) line(spent time.Duration, done, total int64) string {
	text := fmt.Sprintf("%s: %d %%", p.what, done*100/total)
	rate := float64(done) / spent.Seconds()
	if p.unit == inBytes {
		text += fmt.Sprintf(", %s of %s, %s/s", bytesText(done), bytesText(total), bytesText(int64(rate)))
	} else {
		text += fmt.Sprintf(", %s of %s %s, %s/s", humanize.Comma(done), humanize.Comma(total), p.unit, rateText(rate))
	}
	if done > 0 {
		left := time.Duration(float64(spent) * float64(total-done) / float64(done))
		text += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return text
}

func rateText(rate float64) string {
	if rate >= 100 {
		return humanize.Comma(int64(rate))
	}
	return fmt.Sprintf("%.3g", rate)
}

func (p *progress) newBar(total int64) *progressbar.ProgressBar {
	options := []progressbar.Option{
		progressbar.OptionSetWriter(p.out),
		progressbar.OptionSetDescription(p.what),
		progressbar.OptionShowBytes(p.unit == inBytes),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
	}
	if p.unit != inBytes {
		options = append(options, progressbar.OptionShowIts(), progressbar.OptionSetItsString(p.unit))
	}
	return progressbar.NewOptions64(total, options...)
}

// finish removes the bar. A call more does nothing.
func (p *progress) finish() {
	p.mu.Lock()
	bar := p.bar
	p.bar = nil
	p.mu.Unlock()
	if bar != nil {
		_ = bar.Clear()
	}
}
