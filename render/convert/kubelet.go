package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// kubelet are the settings that a pool had for its kubelets before v1, where they stand on
// the class. Which class that is, and who else refers to it, is known when everything is read.
type kubelet struct {
	from *converter
	path []any
	// spec is that of the pool as it is written, without the settings.
	spec, value map[string]any
}

// takeKubelet takes the kubelet's settings out of a pool's spec. What it returns notes
// where they belong, as soon as the pool refers to a class.
func (c *converter) takeKubelet(spec map[string]any) (move func()) {
	take := func(in map[string]any, name string, path []any) (kubelet, bool) {
		settings, ok := in[name].(map[string]any)
		if !ok {
			return kubelet{}, false // What isn't a struct is refused with the rest of the spec.
		}
		delete(in, name)
		if _, ok := settings["containerRuntime"]; ok {
			delete(settings, "containerRuntime")
			c.lossy(at(path, "containerRuntime"), "v1 has no containerRuntime: nodes have the one of their image", "remove it")
		}
		c.kubeletFields(settings, path)
		return kubelet{from: c, path: path, spec: spec, value: settings}, true
	}
	k, ok := take(sub(spec, "template", "spec"), "kubelet", []any{"spec", "template", "spec", "kubelet"})
	if old, older := take(spec, "kubeletConfiguration", []any{"spec", "kubeletConfiguration"}); older && !ok {
		k, ok = old, true
	} else if older && formOf(old.value) != formOf(k.value) {
		c.lossy(old.path, "the pool's template has other kubelet settings already", "keep one of them")
	}
	return func() {
		if ok {
			c.result.kubelets = append(c.result.kubelets, k)
		}
	}
}

// kubeletFields warns of settings that the kubelet doesn't have.
func (c *converter) kubeletFields(settings map[string]any, path []any) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if message, help := render.UnknownKubeletField(name); message != "" {
			c.note(diag.Warning, render.CodeDoubtful, at(path, name), message, help)
		}
	}
}

// reference is the reference of a pool's spec to its class.
func reference(spec map[string]any) map[string]any {
	return sub(spec, "template", "spec", "nodeClassRef")
}

// placeKubelets moves the kubelets' settings of pools to the classes that they refer to.
// Pools that share a class and want different settings get classes of their own.
func (r *Result) placeKubelets() {
	byClass := map[string][]kubelet{}
	for _, k := range r.kubelets {
		ref := reference(k.spec)
		name, _ := ref["name"].(string)
		if ref["kind"] != "EC2NodeClass" || r.objects["nodeClasses"][name] == nil {
			k.from.lossy(k.path, fmt.Sprintf("kubelet settings belong to the EC2NodeClass in v1, and the class %s isn't among what is imported", name),
				"import the class together with the pool, or move them to spec.kubelet of the class by hand")
			continue
		}
		byClass[name] = append(byClass[name], k)
	}
	for _, name := range slices.Sorted(maps.Keys(byClass)) {
		r.placeOn(name, byClass[name])
	}
}

// placeOn moves settings to a class, or to copies of it.
func (r *Result) placeOn(class string, all []kubelet) {
	original := r.objects["nodeClasses"][class]
	taken := map[string]string{} // The class that has some settings.
	if own, ok := sub(original, "spec")["kubelet"]; ok {
		taken[formOf(own)] = class
	} else if r.usedWithout(class, all) {
		taken[formOf(nil)] = class
	}
	pristine := copyOf(original).(map[string]any)
	for _, k := range all {
		form := formOf(k.value)
		name, known := taken[form]
		switch {
		case known && name == class:
			k.from.moved(k.path, fmt.Sprintf("the kubelet's settings are spec.kubelet of the EC2NodeClass %s in v1", name))
			continue
		case !known && len(taken) == 0:
			taken[form] = class
			sub(original, "spec")["kubelet"] = copyOf(k.value)
			k.from.moved(k.path, fmt.Sprintf("the kubelet's settings are spec.kubelet of the EC2NodeClass %s in v1, and are moved there", class))
			continue
		case !known:
			name = r.freeClass(class + "-" + k.from.doc.Name)
			taken[form] = name
			own := copyOf(pristine).(map[string]any)
			sub(own, "spec")["kubelet"] = copyOf(k.value)
			r.objects["nodeClasses"][name] = own
		}
		reference(k.spec)["name"] = name
		k.from.note(diag.Warning, CodeMoved, k.path,
			fmt.Sprintf("the kubelet's settings are spec.kubelet of the class in v1, and others that refer to the EC2NodeClass %s have different ones: the pool refers to %s, a copy of it with these", class, name),
			"keep both classes, or give all pools of the class the same settings")
	}
}

// usedWithout reports whether a pool that has no settings for its kubelets refers to a class.
func (r *Result) usedWithout(class string, with []kubelet) bool {
	for name, pool := range r.objects["nodePools"] {
		if slices.ContainsFunc(with, func(k kubelet) bool { return k.from.doc.Name == name }) {
			continue
		}
		if ref := reference(sub(pool, "spec")); ref["kind"] == "EC2NodeClass" && ref["name"] == class {
			return true
		}
	}
	return false
}

// freeClass returns a name that no class has.
func (r *Result) freeClass(name string) string {
	free := name
	for i := 2; r.objects["nodeClasses"][free] != nil; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	return free
}

// formOf is a text that equal settings share. No settings are none that are set.
func formOf(v any) string {
	if m, ok := v.(map[string]any); ok && len(m) == 0 {
		v = nil
	}
	var b strings.Builder
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		panic(fmt.Sprintf("convert: a JSON tree without a JSON form: %v", err))
	}
	return b.String()
}
