package policies

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/render"
)

// fleet is a bundle of pools of which no two are alike.
func fleet(pools int) render.Bundle {
	var b render.Bundle
	in := func(key string, values ...any) any {
		return map[string]any{"key": key, "operator": "In", "values": values}
	}
	for i := range pools {
		name := fmt.Sprintf("pool-%04d", i)
		b.Objects = append(b.Objects, render.Object{
			GVK: schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodePool"}, Name: name,
			Value: map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{
				"weight": int64(1 + i%100), "limits": map[string]any{"cpu": int64(i)},
				"disruption": map[string]any{"consolidateAfter": fmt.Sprintf("%dm", 1+i%30), "budgets": []any{
					map[string]any{"nodes": fmt.Sprintf("%d%%", 1+i%20)},
					map[string]any{"nodes": "0", "schedule": fmt.Sprintf("0 %d * * mon-fri", i%24), "duration": "8h"},
				}},
				"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": name}}, "spec": map[string]any{
					"expireAfter": fmt.Sprintf("%dh", 24+i%600),
					"requirements": []any{
						in("kubernetes.io/arch", []any{"amd64", "arm64"}[i%2]), in("karpenter.sh/capacity-type", "spot", "on-demand"), in("team", name),
						map[string]any{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": []any{fmt.Sprint(i % 40)}},
					},
				}},
			}},
		})
	}
	return b
}

func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("pools=%d", n), func(b *testing.B) {
			bundle := fleet(n)
			b.ReportAllocs()
			for b.Loop() {
				if found := New(nil, Options{At: at(), Apply: []string{all}}).Check(bundle, nil); found.HasErrors() {
					b.Fatal(found)
				}
			}
		})
	}
}
