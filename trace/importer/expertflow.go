package importer

import (
	"encoding/json"
	"math"

	"outrider/layout"
	"outrider/trace"
)

// flowVersion is the schema version of Expertflow
// (github.com/crankysmh47/Expertflow) that is read.
const flowVersion = "1.0.0"

// Limits of what is remembered of requests.
const (
	maxRequests  = 1 << 18
	maxRequestID = 1 << 10
)

// flowEvent is one line: what one layer's router chose for one token.
type flowEvent struct {
	Version string    `json:"schema_version"`
	Request string    `json:"request_id"`
	Phase   string    `json:"phase"`
	Forward int64     `json:"forward_id"`
	Pos     int64     `json:"token_index"`
	Token   int64     `json:"token_id"`
	Layer   int       `json:"layer_id"`
	IDs     []int32   `json:"selected_expert_ids"`
	Weights []float32 `json:"selected_expert_weights"`
}

func openExpertflow(in *input) (*content, error) {
	f, s, forward := in.files[0], &survey{}, int64(0)
	err := eachFlowEvent(f, func(at place, e *flowEvent) error {
		if s.rows == 0 || e.Forward != forward {
			forward = e.Forward
			s.groups++
		}
		if err := s.row(e.Layer, len(e.IDs), e.Weights); err != nil {
			return f.damaged(at, "%v", err)
		}
		return nil
	})
	h, index, err := s.header(in, "expertflow", layout.Shape{}, err)
	if err != nil {
		return nil, err
	}
	h.IDs, h.Sequences, h.Tokens = trace.IDsLogical, trace.Yes, true
	return &content{header: h, emit: func(out emitter) error { return emitFlow(f, newPass(h, index, out)) }}, nil
}

// emitFlow tells the tokens forward pass by forward pass.
func emitFlow(f *file, p *pass) error {
	requests := map[string]int64{}
	var forward int64
	var last place
	err := eachFlowEvent(f, func(at place, e *flowEvent) error {
		if p.holds() && e.Forward != forward {
			if err := p.finish(f, last); err != nil {
				return err
			}
		}
		forward, last = e.Forward, at
		seq, ok := requests[e.Request]
		if !ok {
			if len(requests) == maxRequests {
				return f.damaged(at, "there are more than %d requests: split the file", maxRequests)
			}
			seq = int64(len(requests))
			requests[e.Request] = seq
		}
		phase := trace.Prefill
		if e.Phase == "decode" {
			phase = trace.Decode
		}
		k := tokenKey{seq: seq, pos: e.Pos, token: int32(e.Token), phase: phase}
		if err := p.row(e.Layer, k, e.IDs, e.Weights); err != nil {
			return f.damaged(at, "%v", err)
		}
		return nil
	})
	if err == nil && p.holds() {
		return p.finish(f, last)
	}
	return p.broken(f, err)
}

// eachFlowEvent calls fn with each event, which is valid until it returns.
func eachFlowEvent(f *file, fn func(at place, e *flowEvent) error) error {
	var e flowEvent
	return f.eachLine(func(at place, line []byte) error {
		e = flowEvent{Layer: -1, Forward: -1, Pos: -1, Token: -1, IDs: e.IDs[:0], Weights: e.Weights[:0]}
		if err := json.Unmarshal(line, &e); err != nil {
			return f.damaged(at, "the line is no router event: %v", err)
		}
		switch {
		case e.Version != flowVersion:
			return f.damaged(at, "schema_version is %.20q, want %q, the only one that is read", e.Version, flowVersion)
		case e.Request == "" || len(e.Request) > maxRequestID:
			return f.damaged(at, "request_id has %d bytes, want 1 to %d", len(e.Request), maxRequestID)
		case e.Phase != "prefill" && e.Phase != "decode":
			return f.damaged(at, "phase is %.20q, want \"prefill\" or \"decode\"", e.Phase)
		case e.Forward < 0 || e.Pos < 0 || e.Layer < 0:
			return f.damaged(at, "the event needs a forward_id, a token_index and a layer_id of 0 or more")
		case e.Token < 0 || e.Token > math.MaxInt32:
			return f.damaged(at, "token_id is %d, want 0 to %d", e.Token, math.MaxInt32)
		case len(e.Weights) > 0 && len(e.Weights) != len(e.IDs):
			return f.damaged(at, "the event has %d weights for %d experts", len(e.Weights), len(e.IDs))
		}
		return fn(at, &e)
	})
}
