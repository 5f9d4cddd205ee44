package device

import "time"

// Stall delays about one read in every, chosen by the seed, by t. The same seed
// delays the same reads (by Op.Seq).
func Stall(every int64, t time.Duration, seed uint64) Rule {
	return func(op Op) Effect {
		if every > 0 && mix(seed^uint64(op.Seq))%uint64(every) == 0 {
			return Effect{Delay: t}
		}
		return Effect{}
	}
}

// Fail makes about one read in every fail with err, chosen by the seed.
func Fail(every int64, err error, seed uint64) Rule {
	return func(op Op) Effect {
		if every > 0 && mix(seed^uint64(op.Seq))%uint64(every) == 0 {
			return Effect{Err: err}
		}
		return Effect{}
	}
}

// Script gives the reads their effects in order of arrival; later ones get none.
func Script(effects ...Effect) Rule {
	return func(op Op) Effect {
		if op.Seq < int64(len(effects)) {
			return effects[op.Seq]
		}
		return Effect{}
	}
}

// All applies several rules to a read: delays add up, any fault counts, and the
// first error wins.
func All(rules ...Rule) Rule {
	return func(op Op) Effect {
		var all Effect
		for _, r := range rules {
			e := r(op)
			all.Delay += e.Delay
			if all.Err == nil {
				all.Err = e.Err
			}
			all.Short = max(all.Short, e.Short)
			all.Silent = all.Silent || e.Silent
			all.Flip = all.Flip || e.Flip
			all.Panic = all.Panic || e.Panic
		}
		return all
	}
}

// mix is the finaliser of splitmix64: a well-spread hash of a counter.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
