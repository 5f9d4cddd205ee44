package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"outrider/internal/tables"
	"outrider/layout"
)

type verifyCmd struct {
	Dir    string `arg:"" help:"The store's folder."`
	Source string `help:"Compare every tensor with this checkpoint, byte for byte." placeholder:"CHECKPOINT"`
	readingFlags
}

func (verifyCmd) Help() string {
	return "Reads all of the store, several records at a time, and checks bounds, checksums and padding. With --source every tensor byte is compared too; " +
		"--top-k and --predict are then to be as they were when the store was built. What is damaged is listed by layer, expert and place, and gives exit status 1. Nothing is changed." + statusHelp
}

// verifySummary is what --json prints.
type verifySummary struct {
	Store          string           `json:"store"`
	ID             string           `json:"id,omitempty"`
	OK             bool             `json:"ok"`
	Experts        int              `json:"experts"` // records read
	Bytes          int64            `json:"bytes"`
	RouterBytes    int64            `json:"router_bytes"` // of the file of router matrices, 0 if there is none or it cannot be opened
	CopyBytes      int64            `json:"copy_bytes"`   // of the second copies, 0 if there are none
	Compared       bool             `json:"compared"`     // with a checkpoint
	Found          int              `json:"found"`
	Damages        []verifiedDamage `json:"damages"`
	Unreadable     string           `json:"unreadable,omitempty"` // the manifest, the index or a lane's size is wrong
	Seconds        float64          `json:"seconds"`
	BytesPerSecond float64          `json:"bytes_per_second"`
}

type verifiedDamage struct {
	Layer      int32  `json:"layer"` // -1 with expert -1: between the records, or in the router matrices or the files of copies
	Expert     int32  `json:"expert"`
	Projection string `json:"projection,omitempty"`
	Lane       string `json:"lane"`
	Offset     int64  `json:"offset"`
	Reason     string `json:"reason"`
}

// Run checks a store and lists what is damaged.
func (c *verifyCmd) Run(ctx context.Context, a *app) error {
	options := layout.VerifyOptions{FS: layout.OS(), Dir: c.Dir}
	if c.Source != "" {
		cp, err := c.read(options.FS, c.Source)
		if err != nil {
			return err
		}
		options.Source = &cp
	}
	began, bar := a.now(), a.progress("verifying", inBytes)
	defer bar.finish()
	options.Progress = bar.set
	report, err := layout.Verify(ctx, options)
	bar.finish()
	s := &verifySummary{Store: c.Dir, Damages: []verifiedDamage{}}
	var damaged *layout.CorruptError
	switch {
	case errors.As(err, &damaged):
		s.Found, s.Unreadable = 1, damaged.Error()
	case err != nil:
		return err
	default:
		s.fill(report)
	}
	s.Seconds = a.now().Sub(began).Seconds()
	if s.Seconds > 0 {
		s.BytesPerSecond = float64(s.Bytes) / s.Seconds
	}
	if err := a.print(s, s.writeTo); err != nil || s.OK {
		return err
	}
	return wrongError{fmt.Sprintf("%s is damaged (%s): build it again from its checkpoint", c.Dir, findings(s.Found))}
}

func (s *verifySummary) fill(r *layout.VerifyReport) {
	s.ID, s.OK, s.Experts, s.Bytes, s.RouterBytes, s.Compared, s.Found = r.ID, r.OK(), r.Records, r.Bytes, r.RouterBytes, r.Compared, r.Found
	s.CopyBytes = r.CopyBytes
	for _, d := range r.Damages {
		s.Damages = append(s.Damages, verifiedDamage{
			Layer: d.ID.Layer, Expert: d.ID.Index, Projection: d.Projection, Lane: d.Lane, Offset: d.Offset, Reason: d.Reason,
		})
	}
	slices.SortFunc(s.Damages, func(x, y verifiedDamage) int {
		return cmp.Or(cmp.Compare(x.Layer, y.Layer), cmp.Compare(x.Expert, y.Expert), cmp.Compare(x.Offset, y.Offset))
	})
}

func (s *verifySummary) writeTo(w io.Writer) {
	if s.Unreadable != "" {
		fmt.Fprintln(w, s.Unreadable)
		return
	}
	compared := "checksums and padding"
	if s.Compared {
		compared += ", and every tensor byte against the checkpoint"
	}
	var f tables.Fields
	f.Add("store", "%s (%s)", s.Store, s.ID)
	f.Add("read", "%d experts, %s in %.2f s, %s/s", s.Experts, sizeText(s.Bytes), s.Seconds, bytesText(int64(s.BytesPerSecond)))
	f.Add("checked", "%s", compared)
	if s.RouterBytes > 0 {
		f.Add("routers", "%d bytes, checked too", s.RouterBytes)
	}
	if s.CopyBytes > 0 {
		f.Add("copies", "%d bytes, checked too", s.CopyBytes)
	}
	result := "all right"
	if !s.OK {
		result = findings(s.Found)
	}
	f.Add("result", "%s", result)
	f.Print(w)
	if s.OK {
		return
	}
	fmt.Fprintln(w)
	g := tables.NewGrid("layer", "expert", "projection", "lane", "offset", "what is wrong")
	for _, d := range s.Damages {
		layer, expert := fmt.Sprint(d.Layer), fmt.Sprint(d.Expert)
		if d.Layer < 0 {
			layer, expert = "-", "-"
		}
		g.Add(layer, expert, d.Projection, d.Lane, fmt.Sprint(d.Offset), d.Reason)
	}
	g.Print(w)
	if hidden := s.Found - len(s.Damages); hidden > 0 {
		fmt.Fprintf(w, "and %d more\n", hidden)
	}
}

func findings(n int) string { return countText(n, "finding") }
