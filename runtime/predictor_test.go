package runtime_test

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"

	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// TestPredictorGoesOnInAnotherRuntime: what a runtime has learned is saved while
// it is in use, and another one begins with it.
func TestPredictorGoesOnInAnotherRuntime(t *testing.T) {
	var file bytes.Buffer
	play := func(o runtime.Options, saved io.Writer) (p router.Predictor) {
		synctest.Test(t, func(t *testing.T) {
			m := open(t, 16, slow, o)
			defer m.Close()
			s := m.NewSession()
			for token := range int32(50) {
				s.Step(trace.Decode, []int32{token})
				for layer := range small.Layers {
					serve(t, m, s, layer, routing(token, layer))
				}
				if token == 25 {
					if err := router.Save(io.Discard, m.Predictor()); err != nil {
						t.Error(err)
					}
				}
			}
			synctest.Wait()
			p = m.Predictor()
			if err := router.Save(saved, p); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	play(runtime.Options{}, &file)
	loaded, err := router.LoadFor(bytes.NewReader(file.Bytes()), small)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := router.Save(&again, loaded); err != nil || !bytes.Equal(again.Bytes(), file.Bytes()) {
		t.Errorf("got another state (%v), want that which was saved", err)
	}
	if got := play(runtime.Options{Predictor: loaded}, &again); got != loaded {
		t.Errorf("got predictor %v, want the one given: it takes hints already", got)
	}
	m := open(t, 16, slow, runtime.Options{Keep: runtime.KeepLRU})
	defer m.Close()
	if p := m.Predictor(); p != nil {
		t.Errorf("nothing is forecast: got %v, want nil", p)
	}
}
