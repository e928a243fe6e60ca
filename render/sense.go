package render

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// badSchedule is what #Cron of the schemas says. What its pattern lets through is
// judged by the parser that the controllers use.
const badSchedule = "write a schedule as five cron fields (minute, hour, day, month, weekday 0-6) or as a macro such as @daily"

// sense judges what neither CUE nor the CRDs can: schedules that the controllers'
// parser refuses, and values that are allowed but can't have been meant.
func (r *review) sense() {
	switch r.object.GVK.Kind {
	case kindNodePool:
	case kindEC2NodeClass:
		path := []any{"spec", "kubelet"}
		kubelet, _ := lookup(r.copy, path)
		fields, _ := kubelet.(map[string]any)
		for _, name := range sortedKeys(fields) {
			if message, help := UnknownKubeletField(name); message != "" {
				p := child(path, name)
				r.doubt(p, message, help)
				r.findings[len(r.findings)-1].Pos = r.object.KeyPosition(p...)
			}
		}
		return
	default:
		return
	}
	for _, at := range [][]any{{"spec", "disruption", "budgets"}, {sugar.Field, "budgets"}} {
		budgets, _ := lookup(r.copy, at)
		list, _ := budgets.([]any)
		for i := range list {
			path := append(at[:len(at):len(at)], i, "schedule")
			if text, ok := lookup(r.copy, path); ok {
				r.schedule(path, fmt.Sprint(text))
			}
		}
	}
	limits, _ := lookup(r.copy, []any{"spec", "limits"})
	amounts, _ := limits.(map[string]any)
	for _, name := range sortedKeys(amounts) {
		if message, help := unknownResource(name); message != "" {
			path := []any{"spec", "limits", name}
			r.doubt(path, message, help)
			r.findings[len(r.findings)-1].Pos = r.object.KeyPosition(path...)
		}
		if strings.HasPrefix(fmt.Sprint(amounts[name]), "-") {
			path := []any{"spec", "limits", name}
			r.doubt(path, name+" is limited to less than nothing, so that the pool never launches a node", "write what the pool's nodes may add up to, or replicas: 0 or no pool at all")
		}
	}
}

// unknownResource says what is odd about a resource that a pool is limited by, or
// nothing. Names without a domain are Kubernetes' own.
func unknownResource(name string) (message, help string) {
	known := []string{"cpu", "memory", "ephemeral-storage", "pods", "nodes"}
	if name == "" || slices.Contains(known, name) || strings.ContainsAny(name, "./") || strings.HasPrefix(name, "hugepages-") || strings.HasPrefix(name, "attachable-volumes-") {
		return "", ""
	}
	help = "the resources of Kubernetes are " + strings.Join(known, ", ") + "; others have a domain, as in nvidia.com/gpu"
	if s := nearest(name, known); s != "" {
		help = fmt.Sprintf("did you mean %s?", s)
	}
	return fmt.Sprintf("nodes have no resource %s, so that the limit is never reached", name), help
}

func (r *review) schedule(path []any, text string) {
	// As the controllers parse it. A schedule with a time zone of its own is thereby
	// refused, as Karpenter does.
	parsed, err := cron.ParseStandard("TZ=UTC " + text)
	if err != nil {
		s := r.shape.at(PathString(path))
		r.reportFault(s, fault{message: fmt.Sprintf("%q: %s", text, badSchedule), pos: s.pos}, r.object.Position(path...), path)
		return
	}
	// Next gives up after five years, and every date comes in any five years from 2024.
	if parsed.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		r.doubt(path, fmt.Sprintf("%q never comes: no month has such a day", text), "correct the day or the month; the budget is never active")
	}
}

// doubt warns of a value that is allowed but can't have been meant.
func (r *review) doubt(path []any, message, help string) {
	r.findings = append(r.findings, diag.Finding{
		Severity: diag.Warning, Code: CodeDoubtful, Message: message, Help: help,
		Pos: r.object.Position(path...), Object: r.object.ID(), Path: PathString(path),
	})
}
