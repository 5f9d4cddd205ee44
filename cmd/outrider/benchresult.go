package main

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize"

	"outrider/internal/iobench"
	"outrider/internal/tables"
)

// writeBench prints what was measured for people.
func writeBench(w io.Writer, r *iobench.Result) {
	g := tables.NewGrid("arm", "of raw", "spread", "MB/s", "p50 µs", "p99 µs", "p99.9 µs", "CPU s/GiB", "CPU ÷ raw", "allocs/op", "ops")
	for _, b := range r.Raw.Blocks {
		g.Add(fmt.Sprintf("raw %s, depth %d", bytesText(b.BlockBytes), b.Depth), "-",
			fmt.Sprintf("%.0f-%.0f", b.LeastBytesPerSecond/1e6, b.MostBytesPerSecond/1e6),
			fmt.Sprintf("%.0f", b.BytesPerSecond/1e6), "-", "-", "-", fmt.Sprintf("%.4f", b.CPUSecondsOfGiB), "-", "-", "-")
	}
	for _, row := range r.Rows {
		if row.Writes == nil && row.Ops > 0 && row.P50 != nil {
			g.Add(row.Name, figure("%.1f %%", row.ShareOfRaw, 100), spreadText(row), figure("%.0f", row.BytesPerSecond, 1e-6),
				micros(row.P50), micros(row.P99), micros(row.P999),
				figure("%.4f", row.CPUSecondsOfGiB, 1), figure("%.2f", row.CPUOverRaw, 1), figure("%.2f", row.AllocsPerOp, 1), humanize.Comma(row.Ops))
		}
	}
	g.Print(w)
	fmt.Fprintln(w)
	benchFields(r).Print(w)
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "\nwarning: %s\n", text)
	}
}

// benchFields are what the table leaves out.
func benchFields(r *iobench.Result) *tables.Fields {
	f := &tables.Fields{}
	f.Add("raw reader", "%s; %.0f MB/s at best, with blocks of %s", r.Raw.Reader, r.RawBytesPerSecond/1e6, bytesText(r.Raw.BlockBytes))
	f.Add("first arm again", "%.0f MB/s, %.2f of its median", r.Raw.Again/1e6, r.Raw.Drift)
	reads := directText(r.Direct)
	if r.Fallback != "" {
		reads += ": " + r.Fallback
	}
	f.Add("reads", "%s, by %s", reads, r.Engine)
	f.Add("rounds", "%d", r.Rounds)
	f.Add("copies", "%d of %d projections had bytes that were not read to where they were lent", r.Copies.Copied, r.Copies.Checked)
	if r.Residue.Share != nil {
		f.Add("page cache", "holds %s of the files, %.2f %% of what the arms read", bytesText(*r.Residue.Bytes), 100**r.Residue.Share)
	}
	for _, row := range r.Rows {
		switch {
		case row.Writes != nil:
			f.Add("written", "%s to drives, %s by %s calls, in %s uses", humanize.Comma(row.Writes.DriveBytes)+" bytes",
				humanize.Comma(row.Writes.CallBytes)+" bytes", humanize.Comma(row.Writes.Calls), humanize.Comma(row.Writes.Uses))
		case row.P99OverAlone != nil:
			f.Add("speculation", "makes the p99 of a demand %.2f times that without", *row.P99OverAlone)
		}
	}
	return f
}

func spreadText(row iobench.Row) string {
	if row.ShareLeast == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f-%.0f %%", 100**row.ShareLeast, 100**row.ShareMost)
}

// figure is v times a factor, or that there is none.
func figure(format string, v *float64, times float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v*times)
}

// micros shows as much of a time as tells something.
func micros(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v < 100:
		return fmt.Sprintf("%.2f", *v)
	}
	return fmt.Sprintf("%.0f", *v)
}
