package drive

import (
	"fmt"
	"strconv"
	"strings"
)

// pcie is a PCI Express link, told as "16.0 GT/s PCIe" and "4": its name, and
// what it can carry in bytes a second after the coding of its generation.
func pcie(speed, width string) (string, float64) {
	number, _, _ := strings.Cut(speed, " ")
	rate, err := strconv.ParseFloat(number, 64)
	lanes, err2 := strconv.Atoi(width)
	if err != nil || err2 != nil || !(rate > 0 && rate < 1e4) || lanes < 1 || lanes > 64 {
		return "", 0 // "Unknown"
	}
	coding := 128.0 / 130 // generations 3 to 5
	switch {
	case rate <= 5:
		coding = 8.0 / 10
	case rate >= 64:
		coding = 242.0 / 256 // flits
	}
	return fmt.Sprintf("PCIe %s GT/s x%d", number, lanes), rate * 1e9 / 8 * coding * float64(lanes)
}

// sata is a SATA link, told as "6.0 Gbps", coded 8 bits in 10.
func sata(speed string) (string, float64) {
	number, _, _ := strings.Cut(speed, " ")
	rate, err := strconv.ParseFloat(number, 64)
	if err != nil || !(rate > 0 && rate < 1e4) {
		return "", 0 // "<unknown>"
	}
	return "SATA " + number + " Gb/s", rate * 1e9 / 10
}

// usb is a USB connection, told as its rate in Mb/s: "5000". What its coding
// takes differs between generations and is not subtracted.
func usb(speed string) (string, float64) {
	rate, err := strconv.ParseFloat(speed, 64)
	if err != nil || !(rate > 0 && rate < 1e7) {
		return "", 0
	}
	return "USB " + speed + " Mb/s", rate * 1e6 / 8
}
