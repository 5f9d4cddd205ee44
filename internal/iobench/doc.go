// Package iobench measures what the runtime's data plane delivers of what the drive
// gives: both are read in the same rounds, over the same files, so that the share is
// worth more than either figure.
//
//	round:  for each batch:  raw │ batch │ raw │ batch+crc │ batch+ahead │ single
//	        then:            mixed-alone │ mixed-demand │ hits │ hits+forecast
//	end:    the first raw arm once more
//
// A batch is what a layer of a model asks for: as many experts as its router chooses,
// demanded at once by one Use, waited for together, released, and the next batch only
// then: a runner cannot know the next layer's experts while it waits for this one's.
// So the drive runs empty at the end of each batch, and a batch can reach the raw rate
// only nearly. The arm +ahead has the next batch demanded while one is read: what the
// data plane carries when it is never idle. No expert is in memory when it is asked
// for; nothing is forecast; checksums are left out, since the raw reader has none
// either, and the arm +crc shows what they cost.
//
// The raw reader (Raw) reads blocks of an expert's size at random places, as many at
// once as proved best before the rounds. It is fio where that is at hand, else
// a loop of our own. Shares are of the raw reader's slices just before and behind in
// the same round; figures are medians over the rounds, and quantiles of all of them
// together.
//
// Everything is as real as the files that a Target opens: over modelled drives in a
// testing/synctest bubble, a run is exact and takes no time.
package iobench
