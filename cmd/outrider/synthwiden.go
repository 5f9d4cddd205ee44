package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"outrider/internal/tables"
	"outrider/internal/widen"
	"outrider/layout"
	"outrider/layout/gguf"
)

type synthWidenCmd struct {
	Model string `arg:"" help:"The small model: a GGUF file, or any shard of a split one. It stays as it is."`
	Width int    `required:"" help:"Factor of the residual stream, a power of two." placeholder:"R"`
	FFN   int    `required:"" name:"ffn" help:"Factor of the inner width of experts and dense blocks, a power of two." placeholder:"S"`
	Out   string `short:"o" help:"The GGUF file to write, which must not exist; without it, one in the working folder, named after the model and the factors." placeholder:"FILE"`
}

func (synthWidenCmd) Help() string {
	return "The enlarged model writes the same text and routes alike, with experts R x S times as large: inputs are repeated and their " +
		"weights divided by R, which is exact in every tensor type; outputs, norms and biases are repeated. Tensors keep their types; " +
		"attention heads stay, but where llama.cpp wants queries as wide as the stream. Architectures: " +
		strings.Join(widen.Architectures(), ", ") + ". Anything else, and any tensor whose role is not known, is refused. " +
		"Interrupted or failed it leaves nothing." + statusHelp
}

// widening is what --json prints.
type widening struct {
	Out            string  `json:"out"`
	Model          string  `json:"model"`
	Architecture   string  `json:"architecture"`
	Width          int     `json:"width"`
	FFN            int     `json:"ffn"`
	Hidden         int64   `json:"hidden"`       // width of the enlarged residual stream
	ExpertWidth    int64   `json:"expert_width"` // inner width of its experts
	Layers         int     `json:"layers"`       // with routed experts
	Experts        int     `json:"experts"`      // of a layer
	ExpertBytes    int64   `json:"expert_bytes"` // of the largest one
	BytesIn        int64   `json:"bytes_in"`     // tensors of the small model
	BytesOut       int64   `json:"bytes_out"`    // the file
	Untied         bool    `json:"untied"`       // the output got a tensor of its own
	HeadsToo       bool    `json:"heads_too"`    // attention heads are repeated with the stream
	UnevenBlocks   int64   `json:"uneven_blocks"`
	Seconds        float64 `json:"seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"` // written
}

// Run writes the enlarged model.
func (c *synthWidenCmd) Run(ctx context.Context, a *app) error {
	fsys := layout.OS()
	plan, err := widen.New(fsys, c.Model, widen.Options{Width: c.Width, FFN: c.FFN})
	switch {
	case errors.Is(err, widen.ErrFactor):
		return usageError{message(ctx, err)}
	case err != nil:
		return err
	}
	if c.Out == "" {
		name := strings.TrimSuffix(filepath.Base(c.Model), ".gguf")
		c.Out = fmt.Sprintf("%s-wide-%dx%d.gguf", name, c.Width, c.FFN)
	}
	if err := c.checkTarget(a, fsys, plan); err != nil {
		return err
	}
	began, bar := a.now(), a.progress("widening", inBytes)
	defer bar.finish()
	var report widen.Report
	size, err := fileWriter{
		mode: 0o644,
		keep: true,
		write: func(out io.Writer) error {
			report, err = plan.Write(ctx, out, bar.set)
			return err
		},
		check: func(path string) error {
			_, err := gguf.Open(fsys, path)
			return err
		},
	}.to(c.Out)
	if err != nil {
		return err
	}
	bar.finish()
	w := c.result(plan, report, size, a.now().Sub(began))
	return a.print(w, w.writeTo)
}

// checkTarget refuses a file that is there and a drive that is too full, before
// anything is written.
func (c *synthWidenCmd) checkTarget(a *app, fsys layout.WriteFS, plan *widen.Plan) error {
	if _, err := os.Lstat(c.Out); err == nil {
		return inputf("%s is there already and is not overwritten: name another file", c.Out)
	}
	dir := filepath.Dir(c.Out)
	free, err := fsys.Free(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return noFolder(dir, c.Out)
	}
	need := plan.HeaderBytes + plan.TensorBytes
	if err != nil {
		a.say("%s: needs %s", c.Out, bytesText(need)) // what does not fit is found when it is written
		return nil
	}
	a.say("%s: needs %s, %s has %s free", c.Out, bytesText(need), dir, bytesText(free))
	if free < need {
		return fmt.Errorf("%w: %s has %s free, %s needs %s", layout.ErrNoSpace, dir, sizeText(free), c.Out, sizeText(need))
	}
	return nil
}

func (c *synthWidenCmd) result(plan *widen.Plan, report widen.Report, size int64, took time.Duration) *widening {
	w := &widening{
		Out: c.Out, Model: c.Model, Architecture: plan.Architecture, Width: c.Width, FFN: c.FFN,
		Hidden: plan.StreamWidth, ExpertWidth: plan.ExpertWidth, Layers: plan.Blocks, Experts: plan.Experts,
		ExpertBytes: plan.ExpertBytes, BytesIn: plan.SourceBytes, BytesOut: size, Untied: plan.Untied, HeadsToo: plan.HeadsToo,
		UnevenBlocks: report.Uneven, Seconds: took.Seconds(),
	}
	if took > 0 {
		w.BytesPerSecond = float64(size) / took.Seconds()
	}
	return w
}

func (w *widening) writeTo(out io.Writer) {
	var f tables.Fields
	f.Add("written", "%s, %s", w.Out, sizeText(w.BytesOut))
	f.Add("model", "%s (%s), %s of tensors before", w.Model, w.Architecture, sizeText(w.BytesIn))
	f.Add("stream", "%d wide, %d times before", w.Hidden, w.Width)
	f.Add("experts", "%d layers x %d, inner width %d, %s each", w.Layers, w.Experts, w.ExpertWidth, sizeText(w.ExpertBytes))
	if w.Untied {
		f.Add("output", "a tensor of its own: it was the embedding's")
	}
	if w.HeadsToo {
		f.Add("heads", "repeated with the stream, and so is the KV cache")
	}
	if w.UnevenBlocks > 0 {
		f.Add("uneven", "%d numbers or blocks of the small model were too small for equal copies; theirs add up to them all the same", w.UnevenBlocks)
	}
	f.Add("took", "%.1f s, %s/s", w.Seconds, bytesText(int64(w.BytesPerSecond)))
	f.Print(out)
}
