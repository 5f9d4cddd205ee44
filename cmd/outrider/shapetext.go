package main

import (
	"fmt"
	"strings"

	"outrider/layout"
)

func shapeText(s layout.Shape) string {
	text := fmt.Sprintf("%d layers x %d experts, top %d", s.Layers, s.Experts, s.TopK)
	if blocks := blocksText(s); blocks != "" {
		text += ", blocks " + blocks
	}
	return text
}

// blocksText lists the model's own numbers of the layers as ranges, and is empty
// where they are 0, 1, ….
func blocksText(s layout.Shape) string {
	var ranges []string
	for l := 0; l < s.Layers; {
		end := l + 1
		for end < s.Layers && s.LayerID(end) == s.LayerID(end-1)+1 {
			end++
		}
		ranges = append(ranges, span(s.LayerID(l), s.LayerID(end-1)))
		l = end
	}
	if len(ranges) == 1 && s.LayerID(0) == 0 {
		return ""
	}
	return strings.Join(ranges, " ")
}
