package diag

import (
	"cmp"
	"io"
	"slices"
	"strings"
)

// The subset of SARIF 2.1.0 (OASIS, March 2020) that findings need. Code-scanning
// services read rules, results, physical and logical locations.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string        `json:"id"`
		ShortDescription *sarifMessage `json:"shortDescription,omitempty"`
		FullDescription  *sarifMessage `json:"fullDescription,omitempty"`
		HelpURI          string        `json:"helpUri,omitempty"`
		Help             *sarifMessage `json:"help,omitempty"`
	}
	sarifResult struct {
		RuleID           string          `json:"ruleId"`
		RuleIndex        int             `json:"ruleIndex"`
		Level            string          `json:"level"`
		Message          sarifMessage    `json:"message"`
		Locations        []sarifLocation `json:"locations,omitempty"`
		RelatedLocations []sarifLocation `json:"relatedLocations,omitempty"`

		Properties *sarifProperties `json:"properties,omitempty"`
	}
	sarifProperties struct {
		Cluster string `json:"cluster"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		ID       int            `json:"id,omitempty"`
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
		Message  *sarifMessage  `json:"message,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
	sarifLogical struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind,omitempty"`
	}
)

// WriteSARIF prints findings as a SARIF 2.1.0 log of one run of the tool
// "coppice" in the given version. Columns count characters, as SARIF's consumers
// expect; sources is asked for the lines to count in. rules describes the codes, as far
// as it knows them.
func WriteSARIF(w io.Writer, l List, version string, sources Sources, rules map[string]Rule) error {
	src := &lines{sources: sources}
	codes := []string{}
	for _, f := range l {
		codes = append(codes, f.Code)
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	described := []sarifRule{}
	for _, code := range codes {
		described = append(described, rules[code].sarif(code))
	}
	results := []sarifResult{}
	for _, f := range l {
		r := sarifResult{
			RuleID:    f.Code,
			RuleIndex: slices.Index(codes, f.Code),
			Level:     map[Severity]string{Error: "error", Warning: "warning", Info: "note"}[f.Severity],
			Message:   sarifMessage{sentence(f)},
		}
		here := sarifLocation{Physical: src.physical(f.Pos)}
		if name := strings.TrimSpace(f.Object + " " + f.Path); name != "" {
			here.Logical = []sarifLogical{{FullyQualifiedName: name}}
		}
		if here.Physical != nil || here.Logical != nil {
			r.Locations = []sarifLocation{here}
		}
		if f.Cluster != "" {
			r.Properties = &sarifProperties{f.Cluster}
		}
		for i, rel := range f.Related {
			if at := src.physical(rel.Pos); at != nil {
				r.RelatedLocations = append(r.RelatedLocations, sarifLocation{
					ID: i + 1, Physical: at, Message: &sarifMessage{rel.Message},
				})
			}
		}
		results = append(results, r)
	}
	return encode(w, sarifLog{
		Schema:  "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
		Version: "2.1.0",
		Runs: []sarifRun{{
			Tool: sarifTool{sarifDriver{
				Name: "coppice", Version: version,
				InformationURI: "https://github.com/coppice-dev/coppice", Rules: described,
			}},
			ColumnKind: "unicodeCodePoints",
			Results:    results,
		}},
	})
}

// sarif is the rule as SARIF has it. What isn't known is left out.
func (r Rule) sarif(code string) sarifRule {
	text := func(s string) *sarifMessage {
		if s == "" {
			return nil
		}
		return &sarifMessage{s}
	}
	help := r.Help
	if help == "" && r.URI != "" {
		help = "See " + r.URI
	}
	return sarifRule{
		ID: code, ShortDescription: text(r.Title), FullDescription: text(cmp.Or(r.Why, r.Title)), HelpURI: r.URI,
		Help: text(help),
	}
}

func (s *lines) physical(p Position) *sarifPhysical {
	if !p.IsValid() {
		return nil
	}
	out := &sarifPhysical{Artifact: sarifArtifact{uri(p.File)}}
	if p.Line > 0 {
		out.Region = &sarifRegion{StartLine: p.Line, StartColumn: p.Col}
		if line, ok := s.line(p.File, p.Line); ok && p.Col > 1 && p.Col <= len(line)+1 {
			out.Region.StartColumn = 1 + len([]rune(line[:p.Col-1]))
		}
	}
	return out
}

// uri escapes a relative file name as a URI reference.
func uri(file string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(file) {
		switch c := file[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~/@+=,", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// sentence is a finding's message with what to do about it, for formats that
// have one text.
func sentence(f Finding) string {
	text := f.Message
	if about := f.about(); about != "" {
		text = about + ": " + text
	}
	return cmp.Or(strings.TrimSuffix(text+". "+upperFirst(f.Help), ". "), text)
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
