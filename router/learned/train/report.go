package train

import (
	"math"

	"outrider/router"
	"outrider/router/learned"
)

// Report is what a training came to.
type Report struct {
	Model string `json:"model"` // as the first trace told
	// Split is "sequence", or "time" where there was but one sequence: then its end
	// was held out.
	Split            string `json:"split"`
	TrainSequences   int    `json:"train_sequences"`
	TrainTokens      int    `json:"train_tokens"`
	TrainExamples    int    `json:"train_examples"`
	HeldOutSequences int    `json:"held_out_sequences"`
	HeldOutTokens    int    `json:"held_out_tokens"`
	HeldOutExamples  int    `json:"held_out_examples"`
	Parameters       int    `json:"parameters"`
	Hidden           int    `json:"hidden"`
	Embedding        int    `json:"embedding"`
	// Start is the mean held-out log loss before training: the online predictor's.
	Start  float64 `json:"start_log_loss"`
	Epochs []Epoch `json:"epochs"`
	// Best is the epoch that was kept; 0 if none was better than the start, and
	// the network then forecasts what the online predictor does.
	Best        int          `json:"best_epoch"`
	Comparisons []Comparison `json:"comparisons"`
}

// Loss is the mean held-out log loss of the network that was kept.
func (r *Report) Loss() float64 {
	if r.Best == 0 {
		return r.Start
	}
	return r.Epochs[r.Best-1].HeldOutLoss
}

// Epoch is one pass over the examples.
type Epoch struct {
	Epoch       int     `json:"epoch"`          // from 1
	TrainLoss   float64 `json:"train_log_loss"` // mean over experts, in nats, while learning
	HeldOutLoss float64 `json:"held_out_log_loss"`
}

// Comparison is how the network did on held-out examples of one kind, and how the
// online predictor that it stands on did.
type Comparison struct {
	Horizon string `json:"horizon"` // "keep", "ahead", "near"
	// Warm: the online predictor had seen the training sequences; otherwise it
	// began with the held-out ones.
	Warm           bool    `json:"warm"`
	Examples       int     `json:"examples"`
	OnlineRecall   float64 `json:"online_recall_at_k"`
	LearnedRecall  float64 `json:"learned_recall_at_k"`
	OnlineLogLoss  float64 `json:"online_log_loss"`
	LearnedLogLoss float64 `json:"learned_log_loss"`
}

// heldOut are the examples that the network is judged by.
type heldOut struct{ warm, cold *examples }

func (h heldOut) len() int { return h.warm.len() + h.cold.len() }

// loss is the network's mean log loss.
func (h heldOut) loss(m *learned.Model) float64 {
	var sum float64
	for _, x := range []*examples{h.warm, h.cold} {
		forecast(m, x, func(e *example, odds []float32) { sum += logLoss(odds, e.used) })
	}
	return sum / float64(h.len())
}

// compare fills the report's comparisons, the nearest horizon first.
func (h heldOut) compare(m *learned.Model) []Comparison {
	var all []Comparison
	for _, warm := range []bool{false, true} {
		x, by := h.cold, make([]Comparison, learned.Horizons)
		if warm {
			x = h.warm
		}
		forecast(m, x, func(e *example, odds []float32) { by[e.view.Horizon].add(e, odds, x.shape.TopK) })
		for i := range by {
			c := &by[len(by)-1-i]
			if c.Examples > 0 {
				c.finish(learned.Horizon(len(by)-1-i), warm)
				all = append(all, *c)
			}
		}
	}
	return all
}

func (c *Comparison) add(e *example, odds []float32, topK int) {
	online := e.columns[len(e.columns)-len(odds):]
	c.Examples++
	c.OnlineRecall += router.Found(online, e.used, topK)
	c.LearnedRecall += router.Found(odds, e.used, topK)
	c.OnlineLogLoss += logLoss(online, e.used)
	c.LearnedLogLoss += logLoss(odds, e.used)
}

func (c *Comparison) finish(h learned.Horizon, warm bool) {
	c.Horizon, c.Warm = h.String(), warm
	for _, x := range []*float64{&c.OnlineRecall, &c.LearnedRecall, &c.OnlineLogLoss, &c.LearnedLogLoss} {
		*x /= float64(c.Examples)
	}
}

// forecast runs the network over a collection, by the code that ships.
func forecast(m *learned.Model, x *examples, told func(e *example, odds []float32)) {
	s, odds := m.NewScratch(), make([]float32, x.shape.Experts)
	for i := range x.len() {
		e := x.at(i)
		copy(s.Columns(), e.columns)
		m.LogOdds(e.layer, e.view, s, odds)
		told(&e, odds)
	}
}

// logLoss is the mean over the experts, in nats.
func logLoss(odds []float32, used []int32) float64 {
	var sum float64
	for _, z := range odds {
		sum += softplus(float64(z))
	}
	for _, e := range used {
		sum -= float64(odds[e])
	}
	return sum / float64(len(odds))
}

// softplus is log(1 + exp z) without overflow.
func softplus(z float64) float64 { return max(z, 0) + math.Log1p(math.Exp(-math.Abs(z))) }
