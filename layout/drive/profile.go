package drive

// Profile is what was measured, and the settings that follow. Its JSON form is
// what Save writes.
type Profile struct {
	Format  string `json:"format"`  // profileFormat
	Version int    `json:"version"` // of the JSON form

	Path      string  `json:"path"`       // what was measured, as it was given
	Kind      string  `json:"kind"`       // KindFolder, KindFile or KindStore; KindLane in Lanes
	FileBytes int64   `json:"file_bytes"` // what the reads were spread over
	Seconds   float64 `json:"seconds"`    // that the call took
	Direct    bool    `json:"direct"`     // reads went around the page cache
	Fallback  string  `json:"fallback,omitempty"`
	Engine    string  `json:"engine"` // as layout.Engine names it

	// BlockBytes and Depth are the settings to use: the smallest block that
	// comes within 5 % of the best rate, and the smallest number of reads at once
	// that comes within 5 % of that block's best.
	BlockBytes int64 `json:"block_bytes"`
	Depth      int   `json:"depth"`
	// BytesPerSecond is the best rate of all cells. LatencySeconds is the median
	// time of one read of the smallest block, alone on the drive.
	BytesPerSecond float64 `json:"bytes_per_second"`
	LatencySeconds float64 `json:"latency_seconds"`

	// Warning says that and why the figures are not those of the drive, such as
	// that memory was measured. Empty: nothing speaks against them.
	Warning string `json:"warning,omitempty"`
	// Notes are what else to know before relying on the figures.
	Notes []string `json:"notes,omitempty"`

	Device Device `json:"device"`
	Cells  []Cell `json:"cells,omitempty"` // by block size, then depth

	// Lanes are the profiles of the lanes of a store that has several, in order;
	// else empty. The figures above are then theirs together: the largest block,
	// depth and latency, and the sum of the rates of all devices. Such a profile
	// has no cells and no device of its own.
	Lanes []Profile `json:"lanes,omitempty"`
}

// What Profile.Kind says.
const (
	KindFolder = "folder"
	KindFile   = "file"
	KindStore  = "store"
	KindLane   = "lane"
)

// Cell is one block size read at one depth. All figures are medians of rounds.
type Cell struct {
	BlockBytes     int64   `json:"block_bytes"`
	Depth          int     `json:"depth"` // reads under way at once
	BytesPerSecond float64 `json:"bytes_per_second"`
	P50Micros      float64 `json:"p50_us"` // of the time of one read
	P99Micros      float64 `json:"p99_us"`
	// CPUSecondsPerGiB is the processor time of the whole process, 0 where the
	// system does not tell.
	CPUSecondsPerGiB float64 `json:"cpu_s_per_gib"`
	Rounds           int     `json:"rounds"`
	// Spread is the best rate of a round over the worst.
	Spread float64 `json:"spread"`
}

// Device is what the system tells of a drive (Linux: statfs and sysfs). Fields
// are zero where it tells nothing.
type Device struct {
	FileSystem string `json:"file_system,omitempty"` // "ext4", or its magic number in hex
	Number     string `json:"number,omitempty"`      // "259:0", of the whole drive, not of a partition
	Name       string `json:"name,omitempty"`        // "nvme0n1"
	Model      string `json:"model,omitempty"`
	Rotational bool   `json:"rotational,omitempty"`
	Scheduler  string `json:"scheduler,omitempty"`
	// LogicalBlockBytes is the drive's sector, MaxRequestBytes the most that the
	// kernel asks of the drive at once: larger reads are cut.
	LogicalBlockBytes int64 `json:"logical_block_bytes,omitempty"`
	MaxRequestBytes   int64 `json:"max_request_bytes,omitempty"`
	// Link is the slowest known connection, such as "PCIe 16.0 GT/s x4", and what it can carry at most.
	Link               string  `json:"link,omitempty"`
	LinkBytesPerSecond float64 `json:"link_bytes_per_second,omitempty"`
}
