package provision

import (
	"os"
	"testing"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

// TestRolloutGates runs what docs/rollout offers to Argo CD and Flux, and kstatus, on
// NodePools at each stage of a rollout.
func TestRolloutGates(t *testing.T) {
	const ready = `{"type": "Ready", "status": "True", "observedGeneration": 4}`
	pool := func(spec, more string) string {
		return `{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a", "generation": 4}, "spec": {` + spec + `}` + more + `}`
	}
	conditions := func(list string) string { return `, "status": {"nodes": 2, "conditions": [` + list + `]}` }
	drifted := func(value, generation string) string {
		return `{"type": "NodeClaimsDrifted", "status": "` + value + `", "observedGeneration": ` + generation + `, "message": "counted"}`
	}
	tests := map[string]struct {
		why             string
		pool            string
		argo, flux, ksh string
	}{
		"done":         {"every node is as declared", pool("", conditions(ready+","+drifted("False", "4"))), "Healthy", "current", "Current"},
		"rolling out":  {"some nodes are old; kstatus alone doesn't wait, as with Karpenter", pool("", conditions(ready+","+drifted("True", "4"))), "Progressing", "inProgress", "Current"},
		"just applied": {"what is said is of the generation before", pool("", conditions(ready+","+drifted("False", "3"))), "Progressing", "", "Current"},
		"not ready": {"a person has to act", pool("", conditions(`{"type": "Ready", "status": "False", "observedGeneration": 4, "message": "why"},`+drifted("False", "4"))),
			"Degraded", "failed", "InProgress"},
		"not ready while it rolls out": {"a person has to act all the same", pool(`"replicas": 3`, conditions(`{"type": "Ready", "status": "False", "observedGeneration": 4, "message": "why"},`+drifted("True", "4"))),
			"Degraded", "failed", "InProgress"},
		"was not ready": {"what was just applied may mend it", pool("", conditions(`{"type": "Ready", "status": "False", "observedGeneration": 3, "message": "why"},`+drifted("False", "3"))),
			"Progressing", "", "InProgress"},
		"replicas missing": {"a static pool isn't complete", pool(`"replicas": 3`, conditions(ready+","+drifted("False", "4"))), "Progressing", "inProgress", "Current"},
		"replicas there":   {"as many as it wants", pool(`"replicas": 2`, conditions(ready+","+drifted("False", "4"))), "Healthy", "current", "Current"},
	}
	script, err := os.ReadFile("../../docs/rollout/nodepool-health.lua")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON([]byte(tc.pool)); err != nil {
				t.Fatal(err)
			}
			obj := u.Object
			if got := argoHealth(t, string(script), obj); got != tc.argo {
				t.Errorf("Argo CD sees %s, want %s (%s)", got, tc.argo, tc.why)
			}
			if got := fluxHealth(t, obj); got != tc.flux {
				t.Errorf("Flux sees %q, want %q (%s)", got, tc.flux, tc.why)
			}
			got, err := status.Compute(u)
			if err != nil || got.Status.String() != tc.ksh {
				t.Errorf("kstatus sees %v (%v), want %s (%s)", got, err, tc.ksh, tc.why)
			}
		})
	}
	if got := argoHealth(t, string(script), map[string]any{"spec": map[string]any{}, "metadata": map[string]any{}}); got != "Progressing" {
		t.Errorf("Argo CD sees a NodePool without a status as %s", got)
	}
}

// argoHealth runs a health check as Argo CD does: the object is the global obj, and
// what is returned has a status.
func argoHealth(t *testing.T, script string, obj map[string]any) string {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	l.Push(l.NewFunction(lua.OpenBase))
	l.Push(lua.LString(lua.BaseLibName))
	l.Call(1, 0)
	l.SetGlobal("obj", toLua(l, obj))
	if err := l.DoString(script); err != nil {
		t.Fatal(err)
	}
	hs, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns %s", l.Get(-1))
	}
	return hs.RawGetString("status").String()
}

func toLua(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		t := l.NewTable()
		for k, x := range v {
			t.RawSetString(k, toLua(l, x))
		}
		return t
	case []any:
		t := l.NewTable()
		for _, x := range v {
			t.Append(toLua(l, x))
		}
		return t
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case bool:
		return lua.LBool(v)
	}
	return lua.LNil
}

// fluxHealth evaluates the expressions in Flux's order, with the object's top-level
// fields as variables, and returns the name of the first that holds.
func fluxHealth(t *testing.T, obj map[string]any) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/rollout/flux.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		HealthCheckExprs []map[string]string `json:"healthCheckExprs"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil || len(file.HealthCheckExprs) != 1 {
		t.Fatalf("read flux.yaml: %v, %d expressions", err, len(file.HealthCheckExprs))
	}
	env, err := cel.NewEnv(cel.Variable("spec", cel.DynType), cel.Variable("status", cel.DynType), cel.Variable("metadata", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"inProgress", "failed", "current"} {
		ast, issues := env.Compile(file.HealthCheckExprs[0][name])
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := program.Eval(map[string]any{"spec": obj["spec"], "status": obj["status"], "metadata": obj["metadata"]})
		if err != nil {
			t.Fatal(err)
		}
		if out.Value() == true {
			return name
		}
	}
	return ""
}
