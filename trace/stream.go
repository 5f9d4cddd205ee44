package trace

// Stream delivers the tokens of a trace in order. Both readers, a File and a
// Trace's Stream are one. For one goroutine at a time.
type Stream interface {
	// Header describes the trace. Its LayerIDs are shared: do not change them.
	Header() Header
	// Next overwrites a with the next token, reusing a's slices. It returns
	// io.EOF after the last one, a *TornError where the trace stops short, and a
	// *CorruptError where it is damaged; a then holds nothing of use. An error
	// stays: the following calls return it again.
	Next(a *Activation) error
}

// Sink takes the tokens of a trace in order. For one goroutine at a time.
type Sink interface {
	// Append adds one token; a stays the caller's. An activation that does not
	// fit the header is refused (ErrActivation) and leaves the sink usable; any
	// other error stays, and Flush and Close return it too.
	Append(a *Activation) error
	// Flush hands everything appended so far to the underlying writer.
	Flush() error
	// Close flushes and ends the trace. A second Close does nothing.
	Close() error
}

var (
	_ Stream = (*Reader)(nil)
	_ Stream = (*JSONLReader)(nil)
	_ Stream = (*File)(nil)
	_ Stream = (*memoryStream)(nil)
	_ Sink   = (*Writer)(nil)
	_ Sink   = (*JSONLWriter)(nil)
	_ Sink   = (*FileWriter)(nil)
)
