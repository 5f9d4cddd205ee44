package prefetcher

// crowd bounds how many speculative requests a lane works on at once by what they
// cost demands: it compares the time of demands that found the lane taken up by
// forecasts with that of demands that did not. On a drive that serves many requests
// side by side there is no difference, and no bound; on one that serves them one
// after another the bound falls to a single request. Pure; not safe for concurrent
// use.
type crowd struct {
	alone, beside average // time of demands, per byte
	ideal         average // what the lanes' speed and latency make of it
	limit         float64 // of requests
	most          float64
	news          bool // a demand was told of in this step
}

// average is a decayed mean.
type average struct{ mean, n float64 }

func (a *average) add(x float64) {
	a.n = min(a.n+1, crowdWindow)
	a.mean += (x - a.mean) / a.n
}

const (
	crowdWindow = 64 // demands that an average looks back
	crowdEnough = 16 // demands of a kind that say enough of it
	crowdCost   = 1.06
	crowdCut    = 0.6
	crowdGrow   = 1.0 / 64 // requests a demand
	crowdCalm   = 1.04     // times a step without demands
)

func newCrowd(most int) crowd { return crowd{limit: float64(most), most: float64(most)} }

// told notes how long a demand took per byte, whether forecasts were being read on its
// lanes when it began, and how long it should have taken without.
func (c *crowd) told(beside bool, perByte, ideal float64) {
	c.news = true
	c.ideal.add(ideal)
	if !beside {
		c.alone.add(perByte)
		return
	}
	c.beside.add(perByte)
	if c.beside.n < crowdEnough {
		return
	}
	without := c.alone.mean
	if c.alone.n < crowdEnough { // there is hardly a demand without forecasts beside
		without = c.ideal.mean
	}
	if c.beside.mean > crowdCost*without {
		c.limit = max(c.limit*crowdCut, 1)
		c.beside = average{} // what comes is of another limit
		return
	}
	c.limit = min(c.limit+crowdGrow, c.most)
}

// step tells that a step began. Where no demand is there to be in the way of, the
// bound is let go.
func (c *crowd) step() {
	if !c.news {
		c.limit = min(c.limit*crowdCalm, c.most)
	}
	c.news = false
}

// width is how many speculative requests a lane may work on at once.
func (c *crowd) width() int { return int(c.limit) }

// open reports whether speculation costs demands nothing that was noticed.
func (c *crowd) open() bool { return c.limit >= c.most }
