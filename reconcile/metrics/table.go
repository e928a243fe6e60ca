package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Table documents what collectors expose, in Markdown, sorted by name.
func Table(collectors ...prometheus.Collector) (string, error) {
	var rows []string
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			c.Describe(descs)
			close(descs)
		}()
		for d := range descs {
			row, err := row(d, kind(c))
			if err != nil {
				return "", err
			}
			rows = append(rows, row)
		}
	}
	slices.Sort(rows)
	return "| metric | type | labels | is |\n|---|---|---|---|\n" + strings.Join(slices.Compact(rows), ""), nil
}

func kind(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec, prometheus.Counter:
		// A gauge has a counter's methods, and more.
		if _, ok := c.(prometheus.Gauge); !ok {
			return "counter"
		}
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	}
	return "gauge"
}

// row writes one metric. A Desc shows its parts only in its text, as in
// Desc{fqName: "a", help: "b", unit: "", constLabels: {}, variableLabels: {c,d}}.
func row(d *prometheus.Desc, kind string) (string, error) {
	parts := regexp.MustCompile(`^Desc\{fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{([^}]*)\}`).FindStringSubmatch(d.String())
	if parts == nil {
		return "", fmt.Errorf("%s doesn't read like the description of a metric", d)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", strings.Trim(parts[1], `"`), kind, strings.ReplaceAll(parts[3], ",", ", "), strings.Trim(parts[2], `"`)), nil
}
