package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"sigs.k8s.io/yaml"
)

// TestFluxWaits evaluates the health checks of the Flux example as Flux does: the first of
// inProgress, failed and current that is true says what a NodePool is, and one of none is
// waited for.
func TestFluxWaits(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(examples, "flux/rendered.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		Spec struct {
			HealthCheckExprs []map[string]string
		}
	}
	docs := strings.Split(string(text), "\n---\n")
	if err := yaml.Unmarshal([]byte(docs[len(docs)-1]), &k); err != nil || len(k.Spec.HealthCheckExprs) != 1 {
		t.Fatalf("%+v, %v", k, err)
	}
	env, err := cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Encoders())
	if err != nil {
		t.Fatal(err)
	}
	condition := func(kind, status string, generation int64) any {
		return map[string]any{"type": kind, "status": status, "observedGeneration": generation}
	}
	for name, tc := range map[string]struct {
		why    string
		status map[string]any
		want   string
	}{
		"new":      {"nobody has looked at it", map[string]any{}, "inProgress"},
		"no class": {"its class is looked up", map[string]any{"conditions": []any{condition("Ready", "False", 2), condition("ValidationSucceeded", "True", 2)}}, "inProgress"},
		"drifted":  {"nodes are being replaced", map[string]any{"conditions": []any{condition("NodeClaimsDrifted", "True", 2)}}, "inProgress"},
		"stale":    {"its nodes were as declared before", map[string]any{"conditions": []any{condition("NodeClaimsDrifted", "False", 1)}}, "inProgress"},
		"done":     {"its nodes are as declared", map[string]any{"conditions": []any{condition("Ready", "False", 2), condition("NodeClaimsDrifted", "False", 2)}}, "current"},
		"wrong":    {"a pool that can't work isn't waited for", map[string]any{"conditions": []any{condition("ValidationSucceeded", "False", 2)}}, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, kind := range []string{"inProgress", "failed", "current"} {
				parsed, issues := env.Parse(k.Spec.HealthCheckExprs[0][kind])
				if issues.Err() != nil {
					t.Fatal(issues.Err())
				}
				prog, err := env.Program(parsed)
				if err != nil {
					t.Fatal(err)
				}
				out, _, err := prog.Eval(map[string]any{"metadata": map[string]any{"generation": int64(2)}, "status": tc.status})
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				if is, _ := out.Value().(bool); is {
					got = kind
					break
				}
			}
			if got != tc.want {
				t.Errorf("%s: %q, want %s", tc.why, got, tc.want)
			}
		})
	}
}
