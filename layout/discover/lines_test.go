package discover

import "strings"

// lines joins single lines and lists of them.
func lines(first []string, more ...any) []string {
	out := append([]string(nil), first...)
	for _, m := range more {
		switch m := m.(type) {
		case string:
			out = append(out, m)
		case []string:
			out = append(out, m...)
		}
	}
	return out
}

// at puts a prefix in place of {P}.
func at(prefix string, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.ReplaceAll(l, "{P}", prefix)
	}
	return out
}

// each makes lines for the three projections: I and O stand for the numbers of
// inputs and outputs, {J} for the projection's name.
func each(prefix string, forms ...string) []string {
	var out []string
	for _, p := range []struct{ name, in, out string }{{"gate_proj", "H", "F"}, {"up_proj", "H", "F"}, {"down_proj", "F", "H"}} {
		for _, f := range forms {
			scaled := map[string]string{"H": "H/32", "F": "1"}
			out = append(out, prefix+".{E}."+strings.NewReplacer("{J}", p.name, "<I/32>", scaled[p.in],
				"<I>", p.in, "<I/2>", p.in+"/2", "<I/8>", p.in+"/8", "<O>", p.out, "<O/8>", p.out+"/8").Replace(f))
		}
	}
	return out
}

func fp8(prefix string) []string {
	return each(prefix, "{J}.weight F8_E4M3 <O> <I>", "{J}.weight_scale_inv F32 1 1")
}

func packed(prefix string) []string {
	return each(prefix, "{J}.weight_packed I32 <O> <I/8>", "{J}.weight_scale BF16 <O> <I/32>", "{J}.weight_shape I32 2")
}

func gptq(prefix string) []string {
	return each(prefix, "{J}.qweight I32 <I/8> <O>", "{J}.scales F16 1 <O>", "{J}.qzeros I32 1 <O/8>", "{J}.g_idx I32 <I>")
}

func nvfp4(prefix string) []string {
	return each(prefix, "{J}.weight U8 <O> <I/2>", "{J}.weight_scale F8_E4M3 <O> <I/32>", "{J}.weight_scale_2 F32", "{J}.input_scale F32")
}

// grokParts are the halves of experts that two tensor-parallel files hold.
func grokParts(prefix string) (out []string) {
	for _, part := range []string{"", " part=1"} {
		out = append(out, prefix+".w1.weight BF16 F H"+part, prefix+".w2.weight BF16 H F"+part, prefix+".w3.weight BF16 F H"+part)
	}
	return out
}

// numa are KTransformers' halves for two memory nodes, of the dimensions given
// slowest first.
func numa(prefix, shape string) (out []string) {
	d := strings.Fields(shape)
	for _, node := range []string{"0", "1"} {
		out = append(out, prefix+".{E}.numa."+node+".weight I8 "+d[1]+" "+d[0], prefix+".{E}.numa."+node+".scale F32 F")
	}
	return out
}
