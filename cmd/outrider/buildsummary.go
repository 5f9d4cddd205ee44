package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"outrider/internal/tables"
	"outrider/layout"
)

// buildSummary is what --json prints.
type buildSummary struct {
	Store          string   `json:"store"`
	ID             string   `json:"id"`
	Model          string   `json:"model"`
	Experts        int      `json:"experts"` // records, over all layers
	BytesIn        int64    `json:"bytes_in"`
	BytesOut       int64    `json:"bytes_out"`
	PaddingBytes   int64    `json:"padding_bytes"`
	PaddingPercent float64  `json:"padding_percent"`
	IndexBytes     int64    `json:"index_bytes"`
	RouterBytes    int64    `json:"router_bytes"`         // of the file of router matrices
	NoRouters      string   `json:"no_routers,omitempty"` // why there is none
	Align          int64    `json:"align"`
	Order          string   `json:"order"`
	Lanes          []string `json:"lanes"`
	LaneBytes      []int64  `json:"lane_bytes"` // 0: it gets nothing, it is too slow beside the others
	// LaneWeights and where they come from: "given", "equal", "measured" or
	// "profiles"; empty with one lane.
	LaneWeights []float64 `json:"lane_weights"`
	WeightsFrom string    `json:"weights_from,omitempty"`
	// Copies are none unless asked for. Their heat comes from the "trace", or is "even".
	CopiedRecords int     `json:"copied_records"`
	CopyBytes     int64   `json:"copy_bytes"` // with padding and index
	CopyHeat      string  `json:"copy_heat,omitempty"`
	LaneCopyBytes []int64 `json:"lane_copy_bytes"` // beside each lane
	// What an unfinished build had done already; 0 without --resume.
	ReusedRecords int   `json:"reused_records,omitempty"`
	ReusedBytes   int64 `json:"reused_bytes,omitempty"`

	// Notes are what is odd about the checkpoint and yet no fault.
	Notes []string `json:"notes,omitempty"`

	Seconds        float64 `json:"seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"` // of the checkpoint's expert bytes
}

func (c *buildCmd) summary(cp *layout.Checkpoint, plan *layout.Plan, report *layout.BuildReport, took time.Duration) *buildSummary {
	s := &buildSummary{
		Store: c.Out, ID: report.ID, Model: cp.Name, Experts: report.Records,
		BytesIn: expertBytes(cp), BytesOut: report.DataBytes, PaddingBytes: report.PaddingBytes,
		PaddingPercent: percent(report.PaddingBytes, report.DataBytes), IndexBytes: report.IndexBytes,
		RouterBytes: report.RouterBytes, NoRouters: cp.NoRouters, Align: plan.Align, Order: "index", Seconds: took.Seconds(),
		CopiedRecords: report.CopiedRecords, CopyBytes: report.CopyBytes,
		ReusedRecords: report.ReusedRecords, ReusedBytes: report.ReusedBytes, Notes: cp.Notes,
	}
	if plan.Ordered {
		s.Order = "co-activation"
	}
	for _, lane := range plan.Lanes {
		s.Lanes = append(s.Lanes, lane.Path)
		s.LaneBytes = append(s.LaneBytes, lane.Size)
		s.LaneWeights = append(s.LaneWeights, lane.Weight)
		s.LaneCopyBytes = append(s.LaneCopyBytes, lane.CopySize)
	}
	if s.CopiedRecords > 0 {
		s.CopyHeat = "even"
		if c.Trace != "" {
			s.CopyHeat = "trace"
		}
	}
	if took > 0 {
		s.BytesPerSecond = float64(s.BytesIn) / took.Seconds()
	}
	return s
}

// expertBytes counts the checkpoint's side independently of the plan.
func expertBytes(cp *layout.Checkpoint) int64 {
	var total int64
	for i := range cp.Layers {
		for j := range cp.Layers[i].Tensors {
			for e := range cp.Shape.Experts {
				total += cp.Layers[i].Tensors[j].Span(e).Bytes
			}
		}
	}
	return total
}

func (s *buildSummary) writeTo(w io.Writer) {
	equal := "equal"
	if s.BytesIn != s.BytesOut {
		equal = "NOT equal"
	}
	var f tables.Fields
	f.Add("store", "%s (%s)", s.Store, s.ID)
	f.Add("experts", "%d", s.Experts)
	f.Add("bytes in", "%d", s.BytesIn)
	f.Add("bytes out", "%d, %s, read back and checked", s.BytesOut, equal)
	f.Add("padding", "%d bytes, %.2f %%, alignment %d", s.PaddingBytes, s.PaddingPercent, s.Align)
	f.Add("index", "%d bytes", s.IndexBytes)
	f.Add("routers", "%s", routersText(s.RouterBytes, s.NoRouters))
	f.Add("order", "%s", s.Order)
	f.Add("lanes", "%s", s.lanesText())
	f.Add("copies", "%s", s.copiesText())
	if s.ReusedRecords > 0 {
		f.Add("resumed", "%d experts, %s, were there already", s.ReusedRecords, sizeText(s.ReusedBytes))
	}
	f.Add("took", "%.2f s, %s/s", s.Seconds, bytesText(int64(s.BytesPerSecond)))
	f.Print(w)
}

// lanesText names the lanes, with their shares if there are several.
func (s *buildSummary) lanesText() string {
	if len(s.Lanes) < 2 {
		return strings.Join(s.Lanes, ", ")
	}
	var lanes []string
	for i, lane := range s.Lanes {
		share := "nothing"
		if s.LaneBytes[i] > 0 {
			share = fmt.Sprintf("%.1f %%", percent(s.LaneBytes[i], s.BytesOut+s.PaddingBytes))
		}
		lanes = append(lanes, fmt.Sprintf("%s (%s)", lane, share))
	}
	return fmt.Sprintf("%s; weights %s", strings.Join(lanes, ", "), s.WeightsFrom)
}

// copiesText is a line on the second copies, empty without any.
func (s *buildSummary) copiesText() string {
	if s.CopiedRecords == 0 {
		return ""
	}
	which := "the hottest of the trace"
	if s.CopyHeat == "even" {
		which = "spread evenly over the layers: give --trace to copy the hottest"
	}
	return fmt.Sprintf("%d of %d records on a second lane, %s, %s", s.CopiedRecords, s.Experts, sizeText(s.CopyBytes), which)
}

// routersText is a line on the file of router matrices.
func routersText(size int64, missing string) string {
	switch {
	case size > 0:
		return fmt.Sprintf("%d bytes, for look-ahead", size)
	case missing != "":
		return "none, so no look-ahead: " + missing
	}
	return "none, so no look-ahead"
}
