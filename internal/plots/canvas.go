package plots

import (
	"bytes"
	"fmt"
	"io"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// pngDPI makes a PNG twice as many pixels wide as an SVG is.
const pngDPI = 192

// render writes a picture of a height, which paint draws. Nothing is written when it
// fails before the last byte is known.
func render(w io.Writer, format string, height vg.Length, paint func(draw.Canvas)) error {
	image, c, err := newCanvas(format, pictureWidth, height)
	if err != nil {
		return err
	}
	paint(c)
	var encoded bytes.Buffer
	if _, err := image.WriteTo(&encoded); err != nil {
		return fmt.Errorf("plots: encode %s: %w", format, err)
	}
	if _, err := w.Write(encoded.Bytes()); err != nil {
		return fmt.Errorf("plots: write: %w", err)
	}
	return nil
}

// newCanvas makes a canvas and what encodes it once it is drawn.
func newCanvas(format string, width, height vg.Length) (io.WriterTo, draw.Canvas, error) {
	switch format {
	case "png":
		image := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pngDPI))
		return vgimg.PngCanvas{Canvas: image}, draw.New(image), nil
	case "svg":
		image := newSVG(width, height)
		return image, draw.New(image), nil
	}
	return nil, draw.Canvas{}, fmt.Errorf("plots: format %q cannot be drawn, want svg or png", format)
}
