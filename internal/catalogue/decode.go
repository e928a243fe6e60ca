package catalogue

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// embedded is a gzipped text of tab-separated lines, the first field naming the
// kind of line:
//
//	date    2025-05-28
//	source  what the data was made from, in words
//	region  name  zone-id,zone-id,…
//	type    the fields of Type, in the order of parseType
//	offer   region-index  on-demand  spot  spot-min  spot-max  zone-bits
//
// An offer belongs to the type above it. Regions and types are sorted by name.
//
//go:generate go -C gen run . ../catalogue.tsv.gz
//go:embed catalogue.tsv.gz
var embedded []byte

func decode(data []byte) (*Catalogue, error) {
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	// The last four bytes of a gzip stream are the length of its content.
	var text strings.Builder
	text.Grow(int(binary.LittleEndian.Uint32(data[len(data)-4:])))
	if _, err := io.Copy(&text, zr); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	const many = 1000 // about as many types as there are
	c := &Catalogue{index: make(map[string]int, many), types: make([]Type, 0, many)}
	rest := text.String()
	for n := 1; rest != ""; n++ {
		line, after, _ := strings.Cut(rest, "\n")
		rest = after
		if err := c.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return c, nil
}

func (c *Catalogue) line(line string) error {
	p := parser{rest: line}
	kind := p.str()
	switch kind {
	case "date":
		c.date = p.str()
	case "source":
		c.sources = append(c.sources, p.str())
	case "region":
		c.regions = append(c.regions, region{name: p.str(), zones: strings.Split(p.str(), ",")})
	case "type":
		t := p.parseType()
		c.index[t.Name] = len(c.types)
		c.types = append(c.types, t)
		for range c.regions {
			c.offers = append(c.offers, offer{})
		}
	case "offer":
		r := p.int()
		o := offer{price: Price{
			OnDemand: p.int64(), Spot: p.int64(), SpotMin: p.int64(), SpotMax: p.int64(),
		}, zones: uint32(p.int64())}
		if len(c.types) == 0 || r < 0 || r >= len(c.regions) {
			return fmt.Errorf("offer without a type or region")
		}
		c.offers[(len(c.types)-1)*len(c.regions)+r] = o
	default:
		return fmt.Errorf("unknown kind %q", kind)
	}
	return p.err
}

// parser takes tab-separated fields off a line and keeps the first error.
type parser struct {
	rest string
	err  error
}

func (p *parser) str() string {
	field, rest, _ := strings.Cut(p.rest, "\t")
	p.rest = rest
	return field
}

// int64 reads an empty field as zero.
func (p *parser) int64() int64 {
	field := p.str()
	if field == "" {
		return 0
	}
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil && p.err == nil {
		p.err = err
	}
	return n
}

func (p *parser) int() int { return int(p.int64()) }

func (p *parser) accelerator() Accelerator {
	return Accelerator{Count: p.int(), Manufacturer: p.str(), Name: p.str(), MemoryMiB: p.int64()}
}

func (p *parser) parseType() Type {
	t := Type{
		Name:         p.str(),
		VCPU:         p.int(),
		MemoryMiB:    p.int64(),
		Arch:         p.str(),
		Hypervisor:   p.str(),
		ClockMHz:     p.int(),
		Manufacturer: p.str(),
	}
	for _, f := range p.str() {
		switch f {
		case 'm':
			t.BareMetal = true
		case 'c':
			t.CurrentGeneration = true
		case 'b':
			t.Burstable = true
		case 'p':
			t.PlacementGroups = true
		}
	}
	t.GPU, t.Accelerator = p.accelerator(), p.accelerator()
	t.NVMeDisks, t.NVMeGB = p.int(), p.int64()
	t.EBSMbps, t.EBSMaxMbps, t.EBSIOPS, t.EBSMaxIOPS = p.int(), p.int(), p.int(), p.int()
	t.NetworkPerformance, t.NetworkMbps = p.str(), p.int()
	t.ENIs, t.IPv4PerENI, t.BranchENIs, t.DefaultCard = p.int(), p.int(), p.int(), p.int()
	for _, card := range strings.Split(p.str(), ";") {
		enis, performance, _ := strings.Cut(card, ":")
		n, err := strconv.Atoi(enis)
		if err != nil {
			if p.err == nil {
				p.err = fmt.Errorf("network card %q: %w", card, err)
			}
			break
		}
		if performance == "" {
			performance = t.NetworkPerformance
		}
		t.Cards = append(t.Cards, Card{ENIs: n, Performance: performance})
	}
	return t
}
