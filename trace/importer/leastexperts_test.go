package importer

import "testing"

// Where only the number of experts is not told, the highest id tells the least
// there can be.
func TestExpertsNotTold(t *testing.T) {
	var eval evalWriter
	eval.tensor("ffn_moe_topk-0", "i32", "TOP_K(", [4]int{2, 1, 1, 1}, 3, 40)
	for _, c := range []struct {
		form, content string
		opts          Options
		want          int
	}{
		{formMoETrace, moeTraceSample, Options{TopK: 2}, 8},
		{formMoERoutes, moeRoutesSample, Options{}, 128},
		{formPrefetchLog, prefetchLogSample, Options{TopK: 2}, 8},
		{formEvalCallback, eval.String(), Options{}, 41},
		{formPrefetchStats, prefetchStatsSample, Options{}, 3},
		{formOlmoeCounts, olmoeSample, Options{Model: "a"}, 3},
		{formLocality, localitySample, Options{}, 11},
	} {
		i := txOpen(t, c.form, c.opts, txFile(t, "sample", c.content))
		got := i.Header().Shape.Experts
		if i.Histogram != nil {
			got = i.Histogram.Experts
		} else if _, err := txTokens(i); err != nil {
			t.Errorf("%s: %v", c.form, err)
		}
		if got != c.want {
			t.Errorf("%s: got %d experts, want %d", c.form, got, c.want)
		}
		txWantNote(t, i, "The form does not tell how many experts a layer has")
	}
}
