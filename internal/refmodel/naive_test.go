package refmodel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// naive is the architecture written down plainly: float64, no cache, all
// positions at once, straight from the file's tensors.
type naive struct {
	Config
	data tensorData
}

// logits is the forecast after the last of the tokens.
func (m naive) logits(tokens []int32) []float64 {
	x := make([][]float64, len(tokens))
	for t, id := range tokens {
		x[t] = widen(m.data["token_embd.weight"][int(id)*m.Hidden:][:m.Hidden])
	}
	for b := range m.Blocks {
		get := func(name string) []float32 { return m.data[fmt.Sprintf("blk.%d.%s.weight", b, name)] }
		m.attention(x, get)
		for t := range x {
			add(x[t], m.moe(m.norm(x[t], get("ffn_norm")), get))
		}
	}
	output := m.data["output.weight"]
	if output == nil {
		output = m.data["token_embd.weight"]
	}
	return times(output, m.norm(x[len(x)-1], m.data["output_norm.weight"]))
}

func (m naive) attention(x [][]float64, get func(string) []float32) {
	var queries, keys, values [][]float64
	for t := range x {
		in := m.norm(x[t], get("attn_norm"))
		queries = append(queries, m.heads(times(get("attn_q"), in), get("attn_q_norm"), t))
		keys = append(keys, m.heads(times(get("attn_k"), in), get("attn_k_norm"), t))
		values = append(values, times(get("attn_v"), in))
	}
	for t := range x {
		var joined []float64
		for h := range m.Heads {
			kv := h / (m.Heads / m.KVHeads) * m.HeadDim
			scores := make([]float64, t+1)
			for p := range scores {
				for i := range m.HeadDim {
					scores[p] += queries[t][h*m.HeadDim+i] * keys[p][kv+i]
				}
				scores[p] /= math.Sqrt(float64(m.HeadDim))
			}
			for i := range m.HeadDim {
				var sum float64
				for p, w := range shares(scores) {
					sum += w * values[p][kv+i]
				}
				joined = append(joined, sum)
			}
		}
		add(x[t], times(get("attn_output"), joined))
	}
}

// heads norms each head and turns it to position t.
func (m naive) heads(row []float64, weight []float32, t int) []float64 {
	var out []float64
	half := m.HeadDim / 2
	for at := 0; at < len(row); at += m.HeadDim {
		head := m.norm(row[at:at+m.HeadDim], weight)
		for i := range half {
			sin, cos := math.Sincos(float64(t) * math.Pow(m.RopeBase, -2*float64(i)/float64(m.HeadDim)))
			a, b := head[i], head[i+half]
			head[i], head[i+half] = a*cos-b*sin, a*sin+b*cos
		}
		out = append(out, head...)
	}
	return out
}

func (m naive) moe(in []float64, get func(string) []float32) []float64 {
	p := shares(times(get("ffn_gate_inp"), in))
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[b], p[a]) })
	var total float64
	for _, e := range order[:m.TopK] {
		total += p[e]
	}
	out := make([]float64, m.Hidden)
	size := m.Hidden * m.ExpertHidden
	for _, e := range order[:m.TopK] {
		var gates, ups []float64
		if both := get("ffn_gate_up_exps"); both != nil {
			both = both[e*2*size:]
			gates, ups = times(both[:size], in), times(both[size:2*size], in)
		} else {
			gates, ups = times(get("ffn_gate_exps")[e*size:][:size], in), times(get("ffn_up_exps")[e*size:][:size], in)
		}
		for i, v := range gates {
			gates[i] = v / (1 + math.Exp(-v)) * ups[i]
		}
		for i, v := range times(get("ffn_down_exps")[e*size:][:size], gates) {
			out[i] += p[e] / total * v
		}
	}
	return out
}

func (m naive) norm(x []float64, weight []float32) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / math.Sqrt(sum/float64(len(x))+float64(m.NormEps)) * float64(weight[i])
	}
	return out
}

func shares(x []float64) []float64 {
	out := make([]float64, len(x))
	var sum float64
	for i, v := range x {
		out[i] = math.Exp(v - slices.Max(x))
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func times(w []float32, x []float64) []float64 {
	out := make([]float64, len(w)/len(x))
	for i, v := range w {
		out[i/len(x)] += float64(v) * x[i%len(x)]
	}
	return out
}

func add(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
