package discover

import (
	"fmt"
	"testing"

	"outrider/layout"
)

// large is a model like Kimi K2 in FP4: 61 blocks of 384 experts, nine tensors each.
func large() Input {
	const blocks, experts, h, f = 61, 384, 7168, 2048
	in := Input{Format: "safetensors", Files: []layout.CheckpointFile{{Path: "m", Size: 1 << 50}}, Facts: Facts{Experts: experts, TopK: 8, Blocks: blocks, Architecture: "kimi_k2"}}
	var at int64
	add := func(name, typ string, bytes int64, dims ...int64) {
		in.Tensors = append(in.Tensors, Tensor{Name: name, Type: typ, Dims: dims, Offset: at, Bytes: bytes})
		at += bytes
	}
	for b := range blocks {
		for e := range experts {
			for _, p := range []struct {
				name    string
				in, out int64
			}{{"gate_proj", h, f}, {"up_proj", h, f}, {"down_proj", f, h}} {
				prefix := fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s.", b, e, p.name)
				add(prefix+"weight", "U8", p.in*p.out/2, p.in/2, p.out)
				add(prefix+"weight_scale", "F8_E4M3", p.in*p.out/16, p.in/16, p.out)
				add(prefix+"weight_scale_2", "F32", 4)
			}
		}
		add(fmt.Sprintf("model.layers.%d.mlp.gate.weight", b), "BF16", 2*h*experts, h, experts)
	}
	return in
}

func BenchmarkFindLarge(b *testing.B) {
	in := large()
	b.ReportAllocs()
	for b.Loop() {
		cp, err := Find(in, Options{})
		if err != nil || len(cp.Layers[60].Tensors) != 9 {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(in.Tensors)), "tensors")
}
