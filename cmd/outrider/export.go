package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"outrider/internal/amount"
	"outrider/internal/tables"
	"outrider/layout"
	"outrider/layout/export"
)

type exportCmd struct {
	Store  string        `arg:"" help:"The store's folder."`
	Out    string        `required:"" help:"Folder to make. It must not exist." placeholder:"PATH"`
	Format string        `help:"gguf or safetensors: whichever the store was built from, since nothing is converted; that is the default too." placeholder:"FORMAT"`
	Shard  amount.Amount `help:"Spread the tensors over files of about that much; by default 5 GB for safetensors and 50 GB for GGUF." placeholder:"BYTES"`
}

func (exportCmd) Help() string {
	return "Turns a store back into the expert tensors that it was built from: the same names, types, shapes and bytes, in the format of the checkpoint. Checksums are compared on the way. " +
		"What a store does not hold (attention, embeddings, shared experts) is not in it. Interrupted or failed it leaves nothing." + statusHelp
}

// exportSummary is what --json prints.
type exportSummary struct {
	Store          string   `json:"store"`
	ID             string   `json:"id"`
	Out            string   `json:"out"`
	Format         string   `json:"format"`
	Files          []string `json:"files"`
	Tensors        int      `json:"tensors"`
	Bytes          int64    `json:"bytes"` // of the tensors
	Seconds        float64  `json:"seconds"`
	BytesPerSecond float64  `json:"bytes_per_second"`
}

// Run exports a store.
func (c *exportCmd) Run(ctx context.Context, a *app) error {
	if c.Shard.Share > 0 {
		return usagef("--shard is bytes, such as 5GB, not a share")
	}
	if c.Format != "" && c.Format != export.GGUF && c.Format != export.Safetensors {
		return usagef("--format is %q, want %s or %s", c.Format, export.GGUF, export.Safetensors)
	}
	began, bar := a.now(), a.progress("exporting", inBytes)
	defer bar.finish()
	report, err := export.Export(ctx, export.Options{
		FS: layout.OS(), Store: c.Store, Out: c.Out, Format: c.Format, ShardBytes: c.Shard.Bytes, Progress: bar.set,
	})
	if err != nil {
		return err
	}
	bar.finish()
	s := c.summary(report, a.now().Sub(began))
	return a.print(s, s.writeTo)
}

func (c *exportCmd) summary(r *export.Report, took time.Duration) *exportSummary {
	s := &exportSummary{Store: c.Store, ID: r.Store, Out: c.Out, Format: r.Format, Files: r.Files, Tensors: r.Tensors, Bytes: r.Bytes, Seconds: took.Seconds()}
	if took > 0 {
		s.BytesPerSecond = float64(r.Bytes) / took.Seconds()
	}
	return s
}

func (s *exportSummary) writeTo(w io.Writer) {
	var f tables.Fields
	f.Add("store", "%s (%s)", s.Store, s.ID)
	f.Add("out", "%s", s.Out)
	f.Add("tensors", "%d, %s, checksums compared", s.Tensors, sizeText(s.Bytes))
	files := filepath.Join(s.Out, s.Files[0])
	if n := len(s.Files); n > 1 {
		files = fmt.Sprintf("%d, from %s to %s", n, s.Files[0], s.Files[n-1])
	}
	f.Add("files", "%s", files)
	f.Add("took", "%.2f s, %s/s", s.Seconds, bytesText(int64(s.BytesPerSecond)))
	f.Print(w)
}
