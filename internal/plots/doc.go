// Package plots draws the results of simulated or replayed runs (Simulation):
// exposed stall and hits against the share of the experts that the cache holds; and
// those of forecasts (Evaluation): how often scores came true, and recall by layer.
//
// A picture says what a run is by how its line looks. A colour stands for what
// ranks the experts that are kept ("online" in "online+spec"); a solid line with
// markers also reads ahead ("+spec"), a dashed one only keeps, a dotted grey or
// black one knows the future and is a bound ("optimum", "oracle", anything with
// "+next"). Colours are those of Okabe and Ito, made for all kinds of colour
// vision, and some by Paul Tol where those run out. Known runs have the same
// colour in every picture.
//
// With one cache share there is no line to draw, and the picture has bars. A
// predictor has the colour of the runs that rank by it; its variants are dashed.
package plots
