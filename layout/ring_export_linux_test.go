package layout

// SetCrowded puts another judgement of the scheduler in place of the ring's own,
// before anything is read.
func (r *Ring) SetCrowded(crowded func() bool) { r.engine.crowded = crowded }
