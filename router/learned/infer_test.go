package learned

import (
	"math"
	"math/rand/v2"
	"testing"

	"outrider/layout"
	"outrider/router"
)

// plain is the network as the package's comment writes it, one expert at a time.
func plain(m *Model, layer int, v View, columns []float32, expert int) float64 {
	p, l, n := m.parameters, m.parameters.Layers[layer], m.dims.Shape.Experts
	fixed := router.FeatureColumns()
	var sharpness float64
	for _, x := range columns[(fixed-1)*n:] {
		sharpness += float64(x) / float64(n)
	}
	var inputs []float64
	for c := range fixed {
		inputs = append(inputs, (float64(columns[c*n+expert])-float64(p.Centre[c]))/float64(p.Scale[c]))
	}
	inputs = append(inputs, (sharpness-float64(p.Centre[fixed]))/float64(p.Scale[fixed]))
	for h := range Horizons {
		inputs = append(inputs, map[bool]float64{true: 1}[v.Horizon == Horizon(h)])
	}
	for i, set := range [][]int32{v.Before, v.Again} {
		var sum float64
		for k := range m.dims.Embedding {
			var mean float64
			for _, e := range set {
				mean += float64([][]float32{l.Before, l.Again}[i][int(e)*m.dims.Embedding+k]) / float64(len(set))
			}
			sum += mean * float64(l.Target[expert*m.dims.Embedding+k])
		}
		inputs = append(inputs, sum)
	}
	var z float64
	for i, x := range inputs {
		z += float64(l.Skip[i]) * x
	}
	for unit, w := range l.Output {
		var sum float64
		for i, x := range inputs {
			sum += float64(l.Hidden[unit*len(inputs)+i]) * x
		}
		z += float64(w) * max(sum, 0)
	}
	return z
}

func TestLogOddsAreTheNetworks(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for _, d := range []Dims{
		{Shape: small, Embedding: 16, Hidden: 16},
		{Shape: small, Embedding: 1, Hidden: 1},
		{Shape: layout.Shape{Layers: 1, Experts: 1, TopK: 1}, Embedding: 3, Hidden: 5},
	} {
		m := drawn(t, d, 7)
		// What carries no weight is left out.
		for l := range m.parameters.Layers {
			layer := &m.parameters.Layers[l]
			for _, c := range []int{0, 3} {
				layer.Skip[c] = 0
				for unit := range d.Hidden {
					layer.Hidden[unit*Inputs()+c] = 0
				}
			}
			m.layers[l] = fold(d, &m.parameters, layer)
		}
		s, got := m.NewScratch(), make([]float32, d.Shape.Experts)
		for range 20 {
			for i := range s.Columns() {
				s.Columns()[i] = float32(random.NormFloat64())
			}
			layer := random.IntN(d.Shape.Layers)
			v := View{Horizon: Horizon(random.IntN(Horizons)), Again: []int32{0}}
			if v.Horizon == Near {
				v.Before = []int32{int32(d.Shape.Experts - 1), 0}
			}
			m.LogOdds(layer, v, s, got)
			for e, z := range got {
				if want := plain(m, layer, v, s.Columns(), e); math.Abs(float64(z)-want) > 1e-5*(1+math.Abs(want)) {
					t.Fatalf("%+v: layer %d %+v expert %d: got %v, want %v", d, layer, v, e, z, want)
				}
			}
		}
	}
}

func TestNewModelRefuses(t *testing.T) {
	good := Dims{Shape: small, Embedding: 2, Hidden: 3}
	nan := float32(math.NaN())
	for name, change := range map[string]func(d *Dims, p *Parameters){
		"shape":           func(d *Dims, p *Parameters) { d.Shape.Layers = 0 },
		"layers":          func(d *Dims, p *Parameters) { p.Layers = p.Layers[1:] },
		"embedding 0":     func(d *Dims, p *Parameters) { d.Embedding = 0 },
		"embedding large": func(d *Dims, p *Parameters) { d.Embedding = MaxEmbedding + 1 },
		"hidden 0":        func(d *Dims, p *Parameters) { d.Hidden = 0 },
		"hidden large":    func(d *Dims, p *Parameters) { d.Hidden = MaxHidden + 1 },
		"too many":        func(d *Dims, p *Parameters) { d.Shape = layout.Shape{Layers: 64, Experts: 65536, TopK: 1} },
		"centre":          func(d *Dims, p *Parameters) { p.Centre[0] = nan },
		"scale":           func(d *Dims, p *Parameters) { p.Scale[0] = 0 },
		"scale large":     func(d *Dims, p *Parameters) { p.Scale[0] = 2 * maxSize },
		"scales":          func(d *Dims, p *Parameters) { p.Scale = p.Scale[1:] },
		"skip":            func(d *Dims, p *Parameters) { p.Layers[1].Skip = nil },
		"target":          func(d *Dims, p *Parameters) { p.Layers[1].Target[4] = float32(math.Inf(1)) },
		"output":          func(d *Dims, p *Parameters) { p.Layers[1].Output[0] = -2 * maxSize },
	} {
		p := drawn(t, good, 1).Parameters()
		d := good
		change(&d, &p)
		if _, err := NewModel("m", d, p); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	if _, err := NewModel(string(make([]byte, maxName+1)), good, drawn(t, good, 1).Parameters()); err == nil {
		t.Error("a long name: got no error, want one")
	}
}

// TestExtremesStayFinite: the largest numbers that are let in cannot make a
// forecast that is none.
func TestExtremesStayFinite(t *testing.T) {
	d := Dims{Shape: small, Embedding: 4, Hidden: 4}
	m := drawn(t, d, 2)
	p := m.Parameters()
	for i := range p.Scale {
		p.Scale[i], p.Centre[i] = minScale, maxSize
	}
	for l := range p.Layers {
		for _, part := range p.Layers[l].parts(d) {
			for i := range *part.numbers {
				(*part.numbers)[i] = maxSize * float32(1-2*(i%2))
			}
		}
	}
	m, err := NewModel("extreme", d, p)
	if err != nil {
		t.Fatal(err)
	}
	predictor, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	conforms(t, predictor)
}
