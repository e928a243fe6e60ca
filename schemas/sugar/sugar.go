// Package sugar compiles what authors may write about a NodePool beyond the API
// of Karpenter into annotations that the controllers read.
//
// An authored NodePool has it in the field "coppice", beside spec. Compile takes
// the field out and puts annotations under coppice.dev in, so that what is applied
// is a plain NodePool. Parse reads the annotations back. The field's shape is the
// CUE definition #Options of coppice.dev/schemas/karpenter/v1.
//
// The package works on values. It may not reach out or read a clock.
package sugar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // Time zones are known on machines that have no list of them.

	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Field is the field of an authored NodePool that holds Options.
const Field = "coppice"

// Annotations that Options compile to.
const (
	AnnotationBudgets                       = coppice.Group + "/budgets"
	AnnotationSoftExpireAfter               = coppice.Group + "/soft-expire-after"
	AnnotationPause                         = coppice.Group + "/pause"
	AnnotationMinSavings                    = coppice.Group + "/min-savings"
	AnnotationMinNodeLifetime               = coppice.Group + "/min-node-lifetime"
	AnnotationConsolidateAfterEmpty         = coppice.Group + "/consolidate-after-empty"
	AnnotationConsolidateAfterUnderutilized = coppice.Group + "/consolidate-after-underutilized"
	AnnotationInPlace                       = coppice.Group + "/in-place"
	AnnotationDriftApproval                 = coppice.Group + "/drift-approval"
	AnnotationReturnToHigherWeight          = coppice.Group + "/return-to-higher-weight"
	AnnotationPreferencePolicy              = coppice.Group + "/preference-policy"
	AnnotationRepair                        = coppice.Group + "/repair"
)

// Options say how a pool's nodes may be taken away, beyond spec.disruption.
type Options struct {
	// Budgets hold beside those of spec.disruption: of all that are active and name
	// the reason, the smallest counts.
	Budgets []Budget `json:"budgets,omitempty"`
	// SoftExpireAfter is the age from which a node is replaced like a drifted one,
	// within budgets. It is shorter than spec.template.spec.expireAfter, at which a
	// node goes whatever the budgets say.
	SoftExpireAfter string `json:"softExpireAfter,omitempty"`
	// Pause keeps all of the pool's nodes for a while.
	Pause *Pause `json:"pause,omitempty"`
	// MinSavings is what consolidating nodes must save to be worth it: a percentage of
	// what they cost, as in 5%, or dollars per hour, as in 0.05.
	MinSavings string `json:"minSavings,omitempty"`
	// MinNodeLifetime is the age before which a node isn't consolidated.
	MinNodeLifetime string `json:"minNodeLifetime,omitempty"`
	// ConsolidateAfter takes the place of spec.disruption.consolidateAfter.
	ConsolidateAfter *ConsolidateAfter `json:"consolidateAfter,omitempty"`
	// InPlace names what of the template is changed on running nodes instead of
	// replacing them.
	InPlace *InPlace `json:"inPlace,omitempty"`
	// DriftApproval is ApprovalRequired, or the revision to which drifted nodes may be
	// replaced, as the condition NodeClaimsDrifted names it. Empty approves everything.
	DriftApproval string `json:"driftApproval,omitempty"`
	// ReturnToHigherWeight lets nodes be replaced by ones of pools with a higher weight,
	// whatever they cost.
	ReturnToHigherWeight bool `json:"returnToHigherWeight,omitempty"`
	// PreferencePolicy says what pods' preferences are worth on the pool's nodes:
	// Priced, Respect or Ignore. It takes the place of the controller's.
	PreferencePolicy string `json:"preferencePolicy,omitempty"`
	// Repair says what becomes of unhealthy nodes, where the gate NodeRepair is on.
	Repair *Repair `json:"repair,omitempty"`
}

// Repair is about nodes with a condition that says that they are ill.
type Repair struct {
	// Reboot lets a node be rebooted, once in its life, before it is replaced.
	Reboot bool `json:"reboot,omitempty"`
	// Tolerate says for how long a Node's condition, one of RepairConditions, may be bad,
	// in place of the default.
	Tolerate map[string]string `json:"tolerate,omitempty"`
}

// RepairConditions lists the conditions of Nodes for which there is repair: the kubelet's
// own, and those of the EKS node monitoring agent.
func RepairConditions() []string {
	return []string{"AcceleratedHardwareReady", "ContainerRuntimeReady", "KernelReady", "NetworkingReady", "Ready", "StorageReady"}
}

// Rebooting reports whether nodes are rebooted before they are replaced.
func (o Options) Rebooting() bool { return o.Repair != nil && o.Repair.Reboot }

// Tolerated is for how long the condition may be bad; fallback where the pool doesn't say.
func (o Options) Tolerated(condition string, fallback time.Duration) time.Duration {
	if o.Repair == nil {
		return fallback
	}
	d, err := time.ParseDuration(o.Repair.Tolerate[condition])
	if err != nil {
		return fallback
	}
	return d
}

// ApprovalRequired is the DriftApproval that approves nothing.
const ApprovalRequired = "required"

// InPlace names keys. One that ends in * stands for all that begin like it.
type InPlace struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	// Taints names the taints' keys.
	Taints []string `json:"taints,omitempty"`
	// Tags are those of the EC2NodeClass on the instance itself. One that is taken away
	// is drift all the same.
	Tags []string `json:"tags,omitempty"`
}

// Names reports whether one of the keys is, or stands for, key.
func Names(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		prefix, all := strings.CutSuffix(k, "*")
		return k == key || all && strings.HasPrefix(key, prefix)
	})
}

// Budget is a budget of spec.disruption with a time zone and dates.
type Budget struct {
	// Nodes is a count, or a percentage of the pool's nodes, rounded up.
	Nodes string `json:"nodes"`
	// Reasons are those that the budget applies to; all, when left out.
	Reasons []karpenter.DisruptionReason `json:"reasons,omitempty"`
	// Schedule is when the budget becomes active, in TimeZone.
	Schedule string `json:"schedule,omitempty"`
	// Duration is how long it stays active each time.
	Duration string `json:"duration,omitempty"`
	// TimeZone is a name of the IANA time zone database; UTC when left out.
	TimeZone string `json:"timeZone,omitempty"`
	// From and Until are the first and the last day on which the budget counts, as in
	// 2026-12-24, both in TimeZone.
	From  string `json:"from,omitempty"`
	Until string `json:"until,omitempty"`
}

// Pause keeps nodes for a while. Somebody answers for it.
type Pause struct {
	// Until is when it ends by itself, in RFC 3339.
	Until string `json:"until"`
	// Author is who wants it.
	Author string `json:"author"`
	// Reason is why.
	Reason string `json:"reason"`
}

// PausedUntil returns the end of a pause that lasts at time now.
func (o Options) PausedUntil(now time.Time) (until time.Time, ok bool) {
	if o.Pause == nil {
		return time.Time{}, false
	}
	until, err := time.Parse(time.RFC3339, o.Pause.Until)
	return until, err == nil && now.Before(until)
}

// String says who wants the pause until when, and why.
func (p Pause) String() string {
	return fmt.Sprintf("until %s by %s: %s", p.Until, p.Author, p.Reason)
}

// ConsolidateAfter says for each reason how long a node must have been settled.
type ConsolidateAfter struct {
	// Empty is for nodes without pods: a duration or Never.
	Empty string `json:"empty,omitempty"`
	// Underutilized is for nodes whose pods fit elsewhere: a duration or Never.
	Underutilized string `json:"underutilized,omitempty"`
}

// Origin says where in the authored object a field of the compiled one comes from.
type Origin struct {
	// Path leads to the field of the compiled object, From to that of the authored one.
	Path, From []any
}

// Fault is something in the field that can't be compiled.
type Fault struct {
	// Path leads to it in the authored object.
	Path []any
	// Message says what is wrong, without the path.
	Message string
}

// Compile returns the plain object that obj stands for, and where its new fields
// come from. An object without the field is returned as it is; obj itself isn't
// changed. With faults, the field is taken out all the same.
func Compile(obj map[string]any) (map[string]any, []Origin, []Fault) {
	raw, ok := obj[Field]
	if !ok {
		return obj, nil, nil
	}
	out := maps.Clone(obj)
	delete(out, Field)
	if obj["kind"] != "NodePool" {
		return out, nil, []Fault{{Path: []any{Field}, Message: "only a NodePool has the field " + Field}}
	}
	options, err := decode(raw)
	if err != nil {
		return out, nil, []Fault{{Path: []any{Field}, Message: err.Error()}}
	}
	faults := options.check(hardExpiry(obj))
	meta, _ := obj["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	if meta == nil {
		meta = map[string]any{}
	}
	annotations, _ := meta["annotations"].(map[string]any)
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]any{}
	}
	var origins []Origin
	compiled := options.compile()
	for _, name := range slices.Sorted(maps.Keys(compiled)) {
		from := append([]any{Field}, compiled[name].from...)
		if _, twice := annotations[name]; twice {
			faults = append(faults, Fault{Path: from, Message: "the annotation " + name + " is written by hand as well"})
			continue
		}
		annotations[name] = compiled[name].text
		origins = append(origins, Origin{Path: []any{"metadata", "annotations", name}, From: from})
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	out["metadata"] = meta
	return out, origins, faults
}

// decode reads the field strictly.
func decode(raw any) (Options, error) {
	var o Options
	text, err := json.Marshal(raw)
	if err != nil {
		return o, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return o, fmt.Errorf("read options: %w", err)
	}
	return o, nil
}

// hardExpiry returns the pool's expireAfter, the API's default if it has none, or
// 0 for never.
func hardExpiry(obj map[string]any) time.Duration {
	spec, _ := obj["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	inner, _ := template["spec"].(map[string]any)
	text, ok := inner["expireAfter"].(string)
	if !ok {
		// The default of NodeClaimTemplateSpec.ExpireAfter.
		return 720 * time.Hour
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}

type annotation struct {
	text string
	// from is the option that the annotation comes from.
	from []any
}

// compile writes each option as an annotation.
func (o Options) compile() map[string]annotation {
	out := map[string]annotation{}
	if len(o.Budgets) > 0 {
		out[AnnotationBudgets] = annotation{encode(o.Budgets), []any{"budgets"}}
	}
	if o.Pause != nil {
		out[AnnotationPause] = annotation{encode(o.Pause), []any{"pause"}}
	}
	put := func(name, text string, from ...any) {
		if text != "" {
			out[name] = annotation{text, from}
		}
	}
	if o.InPlace != nil {
		out[AnnotationInPlace] = annotation{encode(o.InPlace), []any{"inPlace"}}
	}
	if o.Repair != nil {
		out[AnnotationRepair] = annotation{encode(o.Repair), []any{"repair"}}
	}
	if o.ReturnToHigherWeight {
		out[AnnotationReturnToHigherWeight] = annotation{"true", []any{"returnToHigherWeight"}}
	}
	put(AnnotationDriftApproval, o.DriftApproval, "driftApproval")
	put(AnnotationSoftExpireAfter, o.SoftExpireAfter, "softExpireAfter")
	put(AnnotationMinSavings, o.MinSavings, "minSavings")
	put(AnnotationMinNodeLifetime, o.MinNodeLifetime, "minNodeLifetime")
	put(AnnotationPreferencePolicy, o.PreferencePolicy, "preferencePolicy")
	if c := o.ConsolidateAfter; c != nil {
		put(AnnotationConsolidateAfterEmpty, c.Empty, "consolidateAfter", "empty")
		put(AnnotationConsolidateAfterUnderutilized, c.Underutilized, "consolidateAfter", "underutilized")
	}
	return out
}

func encode(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	// The text is read by people with kubectl, never inside HTML.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("sugar: an option without a JSON form: %v", err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Parse reads the options from a live object's annotations and checks them. It
// returns an error that names each annotation that can't be read; the options hold
// the others.
func Parse(annotations map[string]string) (Options, error) {
	o, faults := parse(annotations, 0)
	if len(faults) == 0 {
		return o, nil
	}
	var bad []string
	for _, f := range faults {
		bad = append(bad, pathText(f.Path[len(f.Path)-1:])+": "+f.Message)
	}
	return o, fmt.Errorf("read annotations under %s: %s", coppice.Group, strings.Join(bad, "; "))
}

// CheckAnnotations finds what is wrong with options that are written as annotations by
// hand. The paths lead to annotations.
func CheckAnnotations(obj map[string]any) []Fault {
	meta, _ := obj["metadata"].(map[string]any)
	given, _ := meta["annotations"].(map[string]any)
	annotations := map[string]string{}
	for name, v := range given {
		if text, ok := v.(string); ok {
			annotations[name] = text
		}
	}
	_, faults := parse(annotations, hardExpiry(obj))
	return faults
}

// Annotations lists those that options compile to, in order.
func Annotations() []string {
	return []string{
		AnnotationBudgets, AnnotationConsolidateAfterEmpty, AnnotationConsolidateAfterUnderutilized, AnnotationDriftApproval,
		AnnotationInPlace, AnnotationMinNodeLifetime, AnnotationMinSavings, AnnotationPause, AnnotationPreferencePolicy,
		AnnotationRepair, AnnotationReturnToHigherWeight, AnnotationSoftExpireAfter,
	}
}

// parse reads options from annotations. The faults' paths lead to annotations; expiry is
// as check has it.
func parse(annotations map[string]string, expiry time.Duration) (Options, []Fault) {
	var o Options
	var faults []Fault
	fail := func(name, message string) {
		faults = append(faults, Fault{Path: []any{"metadata", "annotations", name}, Message: message})
	}
	read := func(name string, into any) {
		text, ok := annotations[name]
		if !ok {
			return
		}
		if s, ok := into.(*string); ok {
			*s = text
			return
		}
		dec := json.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(into); err != nil {
			fail(name, err.Error())
		}
	}
	var c ConsolidateAfter
	read(AnnotationBudgets, &o.Budgets)
	read(AnnotationPause, &o.Pause)
	read(AnnotationInPlace, &o.InPlace)
	read(AnnotationRepair, &o.Repair)
	read(AnnotationReturnToHigherWeight, &o.ReturnToHigherWeight)
	read(AnnotationDriftApproval, &o.DriftApproval)
	read(AnnotationSoftExpireAfter, &o.SoftExpireAfter)
	read(AnnotationMinSavings, &o.MinSavings)
	read(AnnotationMinNodeLifetime, &o.MinNodeLifetime)
	read(AnnotationPreferencePolicy, &o.PreferencePolicy)
	read(AnnotationConsolidateAfterEmpty, &c.Empty)
	read(AnnotationConsolidateAfterUnderutilized, &c.Underutilized)
	if c != (ConsolidateAfter{}) {
		o.ConsolidateAfter = &c
	}
	compiled := o.compile()
	for _, f := range o.check(expiry) {
		path := f.Path[1:]
		for _, name := range Annotations() {
			from := compiled[name].from
			if len(from) == 0 || len(path) < len(from) || !slices.Equal(path[:len(from)], from) {
				continue
			}
			if rest := pathText(path[len(from):]); rest != "" {
				f.Message = rest + ": " + f.Message
			}
			fail(name, f.Message)
		}
	}
	return o, faults
}

func pathText(path []any) string {
	var b strings.Builder
	for i, e := range path {
		switch e := e.(type) {
		case int:
			b.WriteString("[" + strconv.Itoa(e) + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, e)
		}
	}
	return b.String()
}
