package iobench

import (
	"fmt"
	"os"

	"outrider/internal/pagecache"
)

// Result is what Run measured, as --json prints it. A nil figure is one that has no
// meaning for its row or is not known; the row's note says why where it is not plain.
type Result struct {
	// RawBytesPerSecond is the raw reader's best, over the sizes of its blocks.
	RawBytesPerSecond float64   `json:"raw_bytes_per_s"`
	Raw               RawResult `json:"raw"`
	Rows              []Row     `json:"rows"`

	Rounds   int     `json:"rounds"`
	Engine   string  `json:"engine"` // of the arms: layout.Engine
	Direct   bool    `json:"direct"`
	Fallback string  `json:"fallback,omitempty"`
	Copies   Copies  `json:"user_space_copies"`
	Residue  Residue `json:"page_cache"`
	// Warnings say why the figures may be of something else than the drive.
	Warnings []string `json:"warnings"`
}

// RawResult is the raw reader's best block size, and all of them.
type RawResult struct {
	Reader          string     `json:"reader"` // "fio 3.33 io_uring, huge pages", "own loop, io_uring"
	BlockBytes      int64      `json:"block_bytes"`
	Depth           int        `json:"depth"`
	CPUSecondsOfGiB float64    `json:"cpu_s_per_gib"`
	Blocks          []RawBlock `json:"blocks"`
	// Again is the first raw arm once more at the end, and Drift that over its median
	// in the rounds.
	Again float64 `json:"again_bytes_per_s"`
	Drift float64 `json:"drift"`
}

// RawBlock is the raw reader with blocks of one size at its best depth; rates are
// medians over the rounds.
type RawBlock struct {
	BlockBytes          int64   `json:"block_bytes"`
	Depth               int     `json:"depth"`
	BytesPerSecond      float64 `json:"bytes_per_s"`
	LeastBytesPerSecond float64 `json:"bytes_per_s_least"`
	MostBytesPerSecond  float64 `json:"bytes_per_s_most"`
	CPUSecondsOfGiB     float64 `json:"cpu_s_per_gib"`
}

// Row is one arm.
type Row struct {
	Name string `json:"name"`
	// ShareOfRaw is the median over the rounds of the arm's rate over that of the raw
	// reader with blocks of an expert's size in the same round.
	ShareOfRaw *float64 `json:"share_of_raw"`
	// Times of one operation: a batch, an expert, a use.
	P50  *float64 `json:"p50_us"`
	P99  *float64 `json:"p99_us"`
	P999 *float64 `json:"p999_us"`
	// CPUSecondsOfGiB is user and system of the whole process.
	CPUSecondsOfGiB *float64 `json:"cpu_s_per_gib"`
	AllocsPerOp     *float64 `json:"allocs_per_op"`

	ShareLeast     *float64 `json:"share_of_raw_least,omitempty"`
	ShareMost      *float64 `json:"share_of_raw_most,omitempty"`
	BytesPerSecond *float64 `json:"bytes_per_s,omitempty"`       // median over the rounds
	ShareOfBest    *float64 `json:"share_of_best_raw,omitempty"` // of RawBytesPerSecond, whatever its blocks
	CPUOverRaw     *float64 `json:"cpu_over_raw,omitempty"`      // of the same blocks
	Ops            int64    `json:"ops"`
	// P99OverAlone is of mixed-demand: its p99 over that without speculation.
	P99OverAlone *float64 `json:"p99_over_alone,omitempty"`
	Writes       *Writes  `json:"writes,omitempty"`
	Note         string   `json:"note,omitempty"`
}

// Writes is what the process wrote while the arms ran.
type Writes struct {
	Uses       int64 `json:"uses"`
	DriveBytes int64 `json:"drive_bytes"` // that were or will be written to a drive
	CallBytes  int64 `json:"call_bytes"`  // handed to write calls, wherever they went
	Calls      int64 `json:"calls"`
}

// Residue is how much of the files is in the page cache after the run.
type Residue struct {
	Bytes     *int64   `json:"bytes"` // nil where the system does not tell
	ReadBytes int64    `json:"read_bytes"`
	Share     *float64 `json:"share"` // of the bytes that the arms read
}

// enough is how many operations a p99.9 takes.
const enough = 1000

func (b *bench) result() *Result {
	r := &Result{Rounds: b.rounds, Copies: b.copies, Warnings: []string{}}
	r.Raw.Reader = b.opt.Raw.Name()
	var best *sizeArms
	for _, s := range b.sizes {
		rate := median(s.raw.rates)
		least, most := spread(s.raw.rates)
		r.Raw.Blocks = append(r.Raw.Blocks, RawBlock{
			BlockBytes: s.target.RecordBytes, Depth: s.depth, BytesPerSecond: rate,
			LeastBytesPerSecond: least, MostBytesPerSecond: most, CPUSecondsOfGiB: s.raw.total.CPUSecondsPerGiB(),
		})
		if best == nil || rate > r.RawBytesPerSecond {
			best, r.RawBytesPerSecond = s, rate
		}
	}
	r.Raw.BlockBytes, r.Raw.Depth, r.Raw.CPUSecondsOfGiB = best.target.RecordBytes, best.depth, best.raw.total.CPUSecondsPerGiB()
	r.Raw.Again = b.again.BytesPerSecond()
	if first := median(b.sizes[0].raw.rates); first > 0 {
		r.Raw.Drift = r.Raw.Again / first
	}
	b.addRows(r)
	b.describeReads(r)
	b.residue(r)
	return r
}

func (b *bench) addRows(r *Result) {
	raw := map[*Target]*record{}
	for _, s := range b.sizes {
		raw[s.target] = s.raw
	}
	for _, rec := range b.records() {
		row := rec.row(raw[rec.target])
		if alone := b.mixed.aloneRec.times.quantile(0.99); rec == b.mixed.mixedRec && alone > 0 {
			row.P99OverAlone = known(float64(rec.times.quantile(0.99)) / float64(alone))
		}
		if row.BytesPerSecond != nil && r.RawBytesPerSecond > 0 {
			row.ShareOfBest = known(*row.BytesPerSecond / r.RawBytesPerSecond)
		}
		r.Rows = append(r.Rows, row)
	}
	r.Rows = append(r.Rows, b.writes())
}

// records are those of all arms but the raw reader's, in the order of the rows.
func (b *bench) records() []*record {
	var all []*record
	for _, s := range b.sizes {
		all = append(all, s.batch, s.sums, s.ahead, s.single)
	}
	all = append(all, b.mixed.aloneRec, b.mixed.mixedRec)
	for _, h := range b.hits {
		all = append(all, h.rec)
	}
	return all
}

// row turns a record into figures; raw is the record of the raw reader that it is
// compared with, if any.
func (r *record) row(raw *record) Row {
	row := Row{Name: r.name, Ops: r.total.Ops}
	us := func(q float64) *float64 { return known(float64(r.times.quantile(q)) / 1e3) }
	if row.Ops > 0 {
		row.P50, row.P99 = us(0.5), us(0.99)
		row.AllocsPerOp = known(float64(r.total.Mallocs) / float64(row.Ops))
	}
	if row.Ops >= enough {
		row.P999 = us(0.999)
	} else {
		row.Note = fmt.Sprintf("p99.9 takes %d operations, there were %d: measure for longer", enough, row.Ops)
	}
	if r.total.Bytes > 0 {
		row.BytesPerSecond = known(median(r.rates))
		if r.total.CPU > 0 {
			row.CPUSecondsOfGiB = known(r.total.CPUSecondsPerGiB())
		}
	}
	if len(r.shares) > 0 {
		least, most := spread(r.shares)
		row.ShareOfRaw, row.ShareLeast, row.ShareMost = known(median(r.shares)), known(least), known(most)
	}
	if raw != nil && raw.total.CPU > 0 && row.CPUSecondsOfGiB != nil {
		row.CPUOverRaw = known(*row.CPUSecondsOfGiB / raw.total.CPUSecondsPerGiB())
	}
	return row
}

func known(v float64) *float64 { return &v }

// writes is what was written in all slices of the arms, reads and hits together.
func (b *bench) writes() Row {
	row := Row{Name: "writes"}
	var all Slice
	for _, rec := range b.records() {
		all.add(rec.total)
	}
	row.Ops = all.Ops
	if !all.written.known {
		row.Note = "the system does not tell what a process writes"
		return row
	}
	row.Writes = &Writes{Uses: all.Ops, DriveBytes: all.written.drive, CallBytes: all.written.calls, Calls: all.written.writes}
	return row
}

// describeReads says how the arms read, and what makes their figures doubtful.
func (b *bench) describeReads(r *Result) {
	r.Direct = true
	for _, s := range b.sizes {
		for _, lane := range s.plain.rt.Stats().Lanes {
			r.Engine = lane.Engine
			if !lane.Direct {
				r.Direct, r.Fallback = false, lane.Fallback
			}
		}
	}
	if !r.Direct {
		r.Warnings = append(r.Warnings, "reads went through the page cache: what was measured is memory, not the drive")
	}
	for _, t := range b.opt.Targets {
		for _, path := range t.Files {
			if name := inMemory(path); name != "" {
				r.Warnings = append(r.Warnings, fmt.Sprintf("%s is on %s, which holds files in memory: what was measured is not a drive", path, name))
				return
			}
		}
	}
	const most = 1.25
	if d := r.Raw.Drift; d > most || d < 1/most {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the first raw arm came to %.2f times its median when it was repeated at the end: the drive's pace changes, look at the shares and their spread", d))
	}
}

// residue asks what of the files is in the page cache.
func (b *bench) residue(r *Result) {
	for _, rec := range b.records() {
		r.Residue.ReadBytes += rec.total.Bytes
	}
	var pages int64
	for _, t := range b.opt.Targets {
		for _, path := range t.Files {
			n, _, err := pagecache.Cached(path)
			if err != nil {
				return
			}
			pages += n
		}
	}
	bytes := pages * int64(os.Getpagesize())
	r.Residue.Bytes = &bytes
	if r.Residue.ReadBytes > 0 {
		r.Residue.Share = known(float64(bytes) / float64(r.Residue.ReadBytes))
	}
}
