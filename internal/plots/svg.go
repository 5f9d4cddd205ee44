package plots

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// svgCanvas is the library's canvas, with text that fits where the font that it
// was laid out in is not installed. To embed that font would take 500 KB.
type svgCanvas struct {
	*vgsvg.Canvas
	widths []vg.Length // of the texts, in the order in which they were drawn
}

func newSVG(width, height vg.Length) *svgCanvas {
	return &svgCanvas{Canvas: vgsvg.New(width, height)}
}

// FillString draws a text and notes how wide it should be.
func (c *svgCanvas) FillString(face font.Face, at vg.Point, s string) {
	c.widths = append(c.widths, face.Width(s))
	c.Canvas.FillString(face, at, s)
}

// svgFonts puts fonts of the same widths behind Liberation Sans. A text that is
// drawn cannot look like this, as its quotes are escaped.
var svgFonts = strings.NewReplacer(
	`style="font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;`,
	`style="font-family:'Liberation Sans',Arial,Helvetica,sans-serif;`,
	`style="font-family:Liberation Sans;font-variant:normal;font-weight:bold;font-style:normal;`,
	`style="font-family:'Liberation Sans',Arial,Helvetica,sans-serif;font-weight:bold;`,
)

// WriteTo writes the document: each text tells its width, to which viewers
// squeeze whatever font they have.
func (c *svgCanvas) WriteTo(w io.Writer) (int64, error) {
	var drawn, out bytes.Buffer
	if _, err := c.Canvas.WriteTo(&drawn); err != nil {
		return 0, err
	}
	const open = "<text "
	for i, part := range strings.Split(svgFonts.Replace(drawn.String()), open) {
		if i > 0 {
			fmt.Fprintf(&out, `%stextLength="%.5g" lengthAdjust="spacingAndGlyphs" `, open, c.widths[i-1].Points())
		}
		out.WriteString(part)
	}
	return out.WriteTo(w)
}
