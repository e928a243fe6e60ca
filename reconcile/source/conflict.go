package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// judge applies the source's conflict rules to the fields of one object, nil if
// none is about it.
func (p *pass) judge(o declared) plan.Judge {
	return plan.Rules(p.src.Spec.Conflicts, planID(o.Object), kube.Manager, p.clock.Now())
}

// rules identifies the rules that hold now: another set makes another drift of the
// same objects.
func (p *pass) rules() string {
	var parts []string
	now := p.clock.Now()
	for i, r := range p.src.Spec.Conflicts {
		if r.Expires != nil {
			if !now.Before(r.Expires.Time) {
				continue
			}
			p.wake(r.Expires.Time)
		}
		parts = append(parts, strconv.Itoa(i))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("/%d/%s", p.src.Generation, strings.Join(parts, ","))
}

// leave looks at an object as it is to be applied and takes out of it the fields
// that rules leave to others. It fails if a rule forbids to apply it.
func (p *pass) leave(ctx context.Context, o declared, look kube.Preview) (*unstructured.Unstructured, kube.Preview, []plan.Difference, error) {
	judge := p.judge(o)
	if judge == nil || look.Live == nil || look.Want == nil {
		return o.object, look, nil, nil
	}
	yielded, failed := plan.Contested(plan.Observed{
		ID: planID(o.Object), Git: o.Value, Want: look.Want.Object, Live: look.Live.Object,
	}, judge)
	if len(yielded) == 0 {
		return o.object, look, nil, nil
	}
	mine := o.object.DeepCopy()
	for _, field := range yielded {
		remove(mine.Object, field)
	}
	look, err := p.applier.Preview(ctx, mine)
	return mine, look, failed, err
}

// remove takes a field out of an object, and the maps that are empty without it: to
// apply an empty map is to claim what is in it.
func remove(object map[string]any, field []string) {
	unstructured.RemoveNestedField(object, field...)
	for n := len(field) - 1; n > 0; n-- {
		if m, ok, err := unstructured.NestedFieldNoCopy(object, field[:n]...); err != nil || !ok || len(asMap(m)) > 0 {
			return
		}
		unstructured.RemoveNestedField(object, field[:n]...)
	}
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// contested is the failure of a commit that rules forbid to apply.
func (p *pass) contested(failed []plan.Difference) error {
	return terminally(reasonConflict, errors.New(p.head.Short()+" sets what others have written, and spec.conflicts says fail: "+
		plan.Summary(failed)+"; undo the change, make it in Git, or change the rule"))
}

// mode says what to do about the drift of one object.
func (p *pass) mode(o declared) coppice.DriftMode {
	return plan.DriftMode(o.Value, p.src.Spec.DriftMode)
}
