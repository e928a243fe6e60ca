package plan

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// meaning says how two values at a path are compared.
type meaning uint8

const (
	literal meaning = iota
	// quantity: 1, "1" and "1000m" are the same.
	quantity
	// duration: "24h" and "1440m" are the same.
	duration
)

// meanings lists the fields of NodePool and EC2NodeClass whose text has several
// forms of the same meaning, where * is any name or index. A CRD stores such
// fields as they are written, so the API server doesn't make the forms one.
func meanings() map[string]meaning {
	return map[string]meaning{
		"spec.limits.*":                             quantity,
		"spec.disruption.consolidateAfter":          duration,
		"spec.disruption.budgets.*.duration":        duration,
		"spec.template.spec.expireAfter":            duration,
		"spec.template.spec.terminationGracePeriod": duration,
		"spec.blockDeviceMappings.*.ebs.volumeSize": quantity,
		"spec.kubelet.kubeReserved.*":               quantity,
		"spec.kubelet.systemReserved.*":             quantity,
		"spec.kubelet.evictionHard.*":               quantity,
		"spec.kubelet.evictionSoft.*":               quantity,
		"spec.kubelet.evictionSoftGracePeriod.*":    duration,
	}
}

func meaningOf(path []any) meaning {
	parts := make([]string, len(path))
	for i, e := range path {
		switch e := e.(type) {
		case string:
			parts[i] = e
		case int:
			parts[i] = strconv.Itoa(e)
		}
	}
	for pattern, m := range meanings() {
		if matches(strings.Split(pattern, "."), parts) {
			return m
		}
	}
	return literal
}

func matches(pattern, parts []string) bool {
	if len(pattern) != len(parts) {
		return false
	}
	for i, p := range pattern {
		if p != "*" && p != parts[i] {
			return false
		}
	}
	return true
}

// equal reports whether two JSON values at a path mean the same.
func equal(path []any, a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			w, ok := b[k]
			if !ok || !equal(append(path[:len(path):len(path)], k), v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i, v := range a {
			if !equal(append(path[:len(path):len(path)], i), v, b[i]) {
				return false
			}
		}
		return true
	}
	if reflect.DeepEqual(a, b) {
		return true
	}
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return x == y
		}
	}
	switch meaningOf(path) {
	case quantity:
		x, xok := text(a)
		y, yok := text(b)
		if !xok || !yok {
			return false
		}
		p, perr := resource.ParseQuantity(x)
		q, qerr := resource.ParseQuantity(y)
		return perr == nil && qerr == nil && p.Cmp(q) == 0
	case duration:
		x, xok := a.(string)
		y, yok := b.(string)
		if !xok || !yok {
			return false
		}
		p, perr := time.ParseDuration(x)
		q, qerr := time.ParseDuration(y)
		return perr == nil && qerr == nil && p == q
	}
	return false
}

// number returns a JSON number of any Go type. Every number that an API object
// holds is small enough to be exact.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case int:
		return float64(v), true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	}
	return 0, false
}

func text(v any) (string, bool) {
	if s, ok := v.(string); ok {
		return s, true
	}
	if f, ok := number(v); ok {
		return strconv.FormatFloat(f, 'f', -1, 64), true
	}
	return "", false
}
