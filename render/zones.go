package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/catalogue"
)

// regions lists EC2's regions, sorted: those of the catalogue, which has the ones
// that it knows prices of, and the others that are open to customers
// (https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html).
func regions() []string {
	return slices.Compact(slices.Sorted(slices.Values(append(catalogue.Get().Regions(),
		"af-south-1", "ap-east-1", "ap-east-2", "ap-south-2", "ap-southeast-3", "ap-southeast-4",
		"ap-southeast-5", "ap-southeast-6", "ap-southeast-7", "ca-west-1", "cn-north-1", "cn-northwest-1",
		"eu-central-2", "eu-south-1", "eu-south-2", "eusc-de-east-1", "il-central-1", "me-central-1",
		"me-south-1", "mx-central-1", "us-gov-east-1", "us-gov-west-1",
	))))
}

// zonesOf is how many letters the zones of a region have at most. An account's
// letters are drawn from as many as there are zones.
func zonesOf(region string) int {
	// Most regions have three zones, and none that the catalogue lacks has more than four.
	most := 3
	ids := catalogue.Get().ZoneIDs(region)
	if ids == nil {
		most = 4
	}
	for _, id := range ids {
		if n, err := strconv.Atoi(id[strings.LastIndex(id, "z")+1:]); err == nil {
			most = max(most, n)
		}
	}
	return most
}

// idPrefix is how the ids of a region's zones begin: usw2 for us-west-2.
func idPrefix(region string) string {
	var b strings.Builder
	for i, part := range strings.Split(region, "-") {
		switch part {
		case "northeast", "northwest", "southeast", "southwest":
			b.WriteString(part[:1] + part[5:6])
		case "north", "south", "east", "west", "central", "gov":
			b.WriteString(part[:1])
		default:
			if i > 0 && (part[0] < '0' || part[0] > '9') {
				part = part[:1]
			}
			b.WriteString(part)
		}
	}
	return b.String()
}

// zoneNames lists the zones that there may be, as us-west-2a.
func zoneNames() []string {
	var out []string
	for _, r := range regions() {
		for i := range zonesOf(r) {
			out = append(out, r+string(rune('a'+i)))
		}
	}
	return out
}

// zoneIDs lists the ids that zones may have, as usw2-az1.
func zoneIDs() []string {
	var out []string
	for _, r := range regions() {
		for i := range zonesOf(r) {
			out = append(out, fmt.Sprintf("%s-az%d", idPrefix(r), i+1))
		}
	}
	return out
}

// regionOf is the region of a zone, or "". Local and Wavelength zones are the
// region's with a suffix of their own, as in us-west-2-lax-1a; the catalogue doesn't
// have them.
func regionOf(zone string) string {
	for _, r := range regions() {
		rest, ok := strings.CutPrefix(zone, r)
		if ok && (strings.HasPrefix(rest, "-") || len(rest) == 1 && rest[0] >= 'a' && rest[0] <= 'z') {
			return r
		}
	}
	return ""
}

// unknownZone says what is odd about the name of a zone, or nothing.
func unknownZone(zone string) (message, help string) {
	region := regionOf(zone)
	if len(zone) > len(region)+1 && region != "" || slices.Contains(zoneNames(), zone) {
		return "", ""
	}
	if region != "" {
		return fmt.Sprintf("%s has no zone %s that is known", region, zone),
			fmt.Sprintf("its zones are %sa to %s%c, of which an account may lack one; %s", region, region, 'a'+zonesOf(region)-1, newer)
	}
	return fmt.Sprintf("zone %s is in no region that is known", zone), nearestHelp(zone, zoneNames(), regions())
}

// unknownZoneID says what is odd about the id of a zone, or nothing.
func unknownZoneID(id string) (message, help string) {
	known := zoneIDs()
	if slices.Contains(known, id) {
		return "", ""
	}
	for _, r := range regions() {
		rest, ok := strings.CutPrefix(id, idPrefix(r)+"-")
		if !ok {
			continue
		}
		if !strings.HasPrefix(rest, "az") {
			return "", ""
		}
		return fmt.Sprintf("%s has no zone %s that is known", r, id),
			fmt.Sprintf("its zones are %s-az1 to %s-az%d; %s", idPrefix(r), idPrefix(r), zonesOf(r), newer)
	}
	return fmt.Sprintf("zone %s is in no region that is known", id), nearestHelp(id, known, nil)
}

// newer is for what is missing from lists that EC2 adds to.
const newer = "if it is newer, nothing is wrong"

// nearestHelp offers the nearest of the candidates or, if none is near, those of the
// fallback that begin alike.
func nearestHelp(given string, candidates, fallback []string) string {
	if s := nearest(given, candidates); s != "" {
		return fmt.Sprintf("did you mean %s? I%s", s, newer[1:])
	}
	area, _, _ := strings.Cut(given, "-")
	var alike []string
	for _, f := range fallback {
		if strings.HasPrefix(f, area+"-") {
			alike = append(alike, f)
		}
	}
	if len(alike) == 0 {
		alike = fallback
	}
	if len(alike) == 0 {
		return newer
	}
	return fmt.Sprintf("regions are %s; %s", strings.Join(alike, ", "), newer)
}
