package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// Disruptions is what is being taken away, what is next, and what something keeps.
type Disruptions struct {
	TakenAt time.Time `json:"takenAt"`
	// Recorded says that the controller's record was there. Without it, Next and
	// Blocked know of drift and expiry alone.
	Recorded bool `json:"recorded"`
	// UnderWay is sorted by the time at which it began.
	UnderWay []UnderWay `json:"underWay"`
	// Next are machines that go by themselves once something ends, the earliest first;
	// those of which it isn't known when come last.
	Next []Waiting `json:"next"`
	// Blocked are machines that stay until somebody acts, by pool and name.
	Blocked []Waiting `json:"blocked"`
	// Pools is sorted by name.
	Pools []PoolBudgets `json:"pools"`
}

// UnderWay is a command, or a machine that goes without one.
type UnderWay struct {
	// ID is the command's, empty for a machine that goes whatever the budgets say.
	ID     string    `json:"id,omitempty"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// Nodes are the names of the Nodes that go, or of the claims of those without one.
	Nodes []string `json:"nodes"`
	// Replacements are the claims that come first.
	Replacements []Replacement `json:"replacements,omitempty"`
	// Stage is how far it is, for people.
	Stage string `json:"stage"`
	// Holds are what keeps it from going on.
	Holds []record.Reason `json:"holds,omitempty"`
}

// Replacement is a machine that others wait for.
type Replacement struct {
	Claim string `json:"claim"`
	Ready bool   `json:"ready"`
	Stage string `json:"stage"`
}

// Waiting is a machine that would go for some reasons, and what keeps it.
type Waiting struct {
	Node    string   `json:"node,omitempty"`
	Claim   string   `json:"claim"`
	Pool    string   `json:"nodePool"`
	Reasons []string `json:"reasons"`
	// Code is one CamelCase word for programs.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Until is when that ends by itself, zero if that isn't known.
	Until time.Time `json:"until,omitzero"`
}

func (w Waiting) name() string { return cmp.Or(w.Node, w.Claim) }

// PoolBudgets is how many of a pool's nodes may go.
type PoolBudgets struct {
	Pool string `json:"nodePool"`
	// Nodes counts the initialized ones, Going those of them that are on their way out.
	Nodes int `json:"nodes"`
	Going int `json:"going"`
	// Paused says until when the pool is paused, by whom and why.
	Paused string `json:"paused,omitempty"`
	// Limits has one for each reason, in a fixed order.
	Limits []ReasonLimit `json:"limits"`
}

// ReasonLimit is how many nodes may be on their way out at a time.
type ReasonLimit struct {
	Reason string `json:"reason"`
	// Nodes is -1 where no budget says anything.
	Nodes int `json:"nodes"`
	// Budget is the one that says so, Until when its present window ends.
	Budget string    `json:"budget,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

const (
	// soon is how far ahead an expiry counts as next.
	soon = 24 * time.Hour
	// stale is how much older than the record's newest entry a decision is that nobody
	// stands by any more: each is confirmed every two seconds.
	stale = time.Minute
)

// Ongoing answers what is going on in a cluster.
func Ongoing(s *snapshot.Snapshot) *Disruptions {
	a := asker{s}
	out := &Disruptions{
		TakenAt: s.TakenAt, Recorded: len(s.Decisions) > 0,
		UnderWay: []UnderWay{}, Next: []Waiting{}, Blocked: []Waiting{}, Pools: []PoolBudgets{},
	}
	out.UnderWay = append(out.UnderWay, a.underWay()...)
	for i := range s.NodePools {
		out.Pools = append(out.Pools, a.budgets(&s.NodePools[i]))
	}
	for i := range s.NodeClaims {
		c := &s.NodeClaims[i]
		if _, going := coppice.DisruptionOf(c); going || c.DeletionTimestamp != nil {
			continue
		}
		for _, w := range a.waiting(c) {
			if w.Until.IsZero() && !passing(w.Code) {
				out.Blocked = append(out.Blocked, w)
			} else {
				out.Next = append(out.Next, w)
			}
		}
	}
	slices.SortStableFunc(out.Next, func(x, y Waiting) int {
		if x.Until.IsZero() != y.Until.IsZero() {
			if x.Until.IsZero() {
				return 1
			}
			return -1
		}
		return x.Until.Compare(y.Until)
	})
	slices.SortStableFunc(out.Blocked, func(x, y Waiting) int {
		return cmp.Or(cmp.Compare(x.Pool, y.Pool), cmp.Compare(x.name(), y.name()))
	})
	return out
}

// passing are codes of what ends by itself, though nobody knows when.
func passing(code string) bool { return code == "Wave" || code == "Budget" || code == "Turn" }

func (a asker) claim(name string) *karpenter.NodeClaim {
	for i := range a.NodeClaims {
		if a.NodeClaims[i].Name == name {
			return &a.NodeClaims[i]
		}
	}
	return nil
}

func (a asker) nodeOf(c *karpenter.NodeClaim) *corev1.Node {
	for i := range a.Nodes {
		if n := &a.Nodes[i]; c.Status.ProviderID != "" && n.Spec.ProviderID == c.Status.ProviderID {
			return n
		}
	}
	return nil
}

// podsOn returns a Node's pods that aren't terminal, those of daemons apart.
func (a asker) podsOn(n *corev1.Node) (movable, daemons []*corev1.Pod) {
	if n == nil {
		return nil, nil
	}
	for i := range a.Pods {
		p := &a.Pods[i]
		switch {
		case p.Spec.NodeName != n.Name || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case ofDaemonSet(p):
			daemons = append(daemons, p)
		default:
			movable = append(movable, p)
		}
	}
	return movable, daemons
}

// underWay lists the commands that claims carry, and what goes without one.
func (a asker) underWay() []UnderWay {
	var out []UnderWay
	seen := map[string]bool{}
	for i := range a.NodeClaims {
		c := &a.NodeClaims[i]
		d, ok := coppice.DisruptionOf(c)
		switch {
		case ok && !seen[d.ID]:
			seen[d.ID] = true
			out = append(out, a.command(d))
		case !ok && c.DeletionTimestamp != nil:
			u := UnderWay{Reason: a.forced(c), Since: c.DeletionTimestamp.UTC()}
			a.leaving(&u, c)
			out = append(out, u)
		}
	}
	slices.SortStableFunc(out, func(x, y UnderWay) int { return x.Since.Compare(y.Since) })
	return out
}

func (a asker) command(d coppice.Disruption) UnderWay {
	u := UnderWay{ID: d.ID, Reason: string(d.Reason), Since: d.Since}
	ready := 0
	for _, name := range d.Replacements {
		r := Replacement{Claim: name, Stage: "gone"}
		if c := a.claim(name); c != nil {
			r.Stage = a.stage(c, a.nodeOf(c))
			r.Ready = c.DeletionTimestamp == nil && apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionInitialized)
		}
		if r.Ready {
			ready++
		}
		u.Replacements = append(u.Replacements, r)
	}
	waits := true
	for _, name := range d.Claims {
		c := a.claim(name)
		switch {
		case c == nil:
			waits = false
		case c.DeletionTimestamp != nil:
			waits = false
			a.leaving(&u, c)
		default:
			u.Nodes = append(u.Nodes, a.nameOf(c))
		}
	}
	if waits {
		u.Stage = "about to go"
		if missing := len(d.Replacements) - ready; missing > 0 {
			u.Stage = fmt.Sprintf("waits for %d of %d replacements", missing, len(d.Replacements))
		}
	}
	return u
}

func (a asker) nameOf(c *karpenter.NodeClaim) string {
	if n := a.nodeOf(c); n != nil {
		return n.Name
	}
	return c.Name
}

// leaving adds a machine whose claim is deleted.
func (a asker) leaving(u *UnderWay, c *karpenter.NodeClaim) {
	n := a.nodeOf(c)
	pods, _ := a.podsOn(n)
	stage := "its instance is ending"
	if len(pods) > 0 {
		stage = fmt.Sprintf("%d pods have yet to leave", len(pods))
	}
	name := a.nameOf(c)
	u.Nodes = append(u.Nodes, name)
	if u.Stage != "" {
		u.Stage += "; "
	}
	u.Stage += name + ": " + stage
	for _, h := range a.holds(c, nil, pods) {
		if h.Code != "Terminating" {
			u.Holds = append(u.Holds, h)
		}
	}
}

// forced says why a machine goes that no command takes away.
func (a asker) forced(c *karpenter.NodeClaim) string {
	reason := "Deleted"
	for _, e := range a.Events {
		if e.Regarding.Kind != "NodeClaim" || e.Regarding.Name != c.Name {
			continue
		}
		switch e.Reason {
		case "TerminatingOnInterruption":
			reason = "Interrupted"
		case "Expired":
			reason = "Expired"
		}
	}
	return reason
}

func (a asker) pool(name string) *karpenter.NodePool {
	for i := range a.NodePools {
		if a.NodePools[i].Name == name {
			return &a.NodePools[i]
		}
	}
	return nil
}

// reasons is the order in which budgets are used up.
func reasonsInOrder() []karpenter.DisruptionReason {
	return []karpenter.DisruptionReason{
		karpenter.DisruptionReasonUnhealthy, karpenter.DisruptionReasonEmpty, karpenter.DisruptionReasonDrifted, karpenter.DisruptionReasonUnderutilized,
	}
}

func (a asker) budgets(p *karpenter.NodePool) PoolBudgets {
	out := PoolBudgets{Pool: p.Name}
	for i := range a.NodeClaims {
		c := &a.NodeClaims[i]
		if c.Labels[karpenter.LabelNodePool] != p.Name || !apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionInitialized) {
			continue
		}
		out.Nodes++
		if _, ok := coppice.DisruptionOf(c); ok || c.DeletionTimestamp != nil {
			out.Going++
		}
	}
	options, err := sugar.Parse(p.Annotations)
	if _, paused := options.PausedUntil(a.TakenAt); paused {
		out.Paused = options.Pause.String()
	}
	for _, r := range reasonsInOrder() {
		l, lerr := sugar.Allowed(sugar.BudgetsOf(p.Spec, options), r, out.Nodes, a.TakenAt)
		if cmp.Or(err, lerr) != nil {
			l = sugar.Limit{By: cmp.Or(err, lerr).Error()}
		}
		if l.Nodes == math.MaxInt {
			l.Nodes = -1
		}
		out.Limits = append(out.Limits, ReasonLimit{Reason: string(r), Nodes: l.Nodes, Budget: l.By, Until: l.Until})
	}
	return out
}

// waiting says what keeps a machine that would go otherwise.
func (a asker) waiting(c *karpenter.NodeClaim) []Waiting {
	n := a.nodeOf(c)
	about := []record.Subject{{Kind: "NodeClaim", Name: c.Name}}
	base := Waiting{Claim: c.Name, Pool: c.Labels[karpenter.LabelNodePool]}
	if n != nil {
		base.Node = n.Name
		about = append(about, record.Subject{Kind: "Node", Name: n.Name})
	}
	var out []Waiting
	add := func(reason, code, message string, until time.Time) {
		for i := range out {
			if w := &out[i]; w.Code == code && w.Message == message && w.Until.Equal(until) {
				w.Reasons = append(w.Reasons, reason)
				return
			}
		}
		w := base
		w.Reasons, w.Code, w.Message, w.Until = []string{reason}, code, message, until
		out = append(out, w)
	}
	known := false
	for _, d := range a.verdicts(about) {
		known = true
		if a.wanted(c, n, d) {
			add(d.Topic, d.Verdict, d.Message, d.Until)
		}
	}
	if why, is := a.outdated(c); !known && is {
		a.unrecorded(c, n, why, add)
	}
	if e := c.Spec.ExpireAfter; e.Duration != nil && *e.Duration > 0 {
		if at := c.CreationTimestamp.Add(*e.Duration); at.Sub(a.TakenAt) < soon {
			add("Expired", "ExpireAfter", fmt.Sprintf("it goes at the age of %s, whatever the budgets say", e.String()), at.UTC())
		}
	}
	return out
}

// verdicts are the last decisions that are still stood by, one for each reason in the
// order in which budgets are used up.
func (a asker) verdicts(about []record.Subject) []record.Decision {
	var newest time.Time
	byTopic := map[string]record.Decision{}
	for _, e := range a.Decisions {
		for _, d := range e.Decisions {
			if d.Last.After(newest) {
				newest = d.Last
			}
			if slices.Contains(about, e.Subject) && !d.Last.Before(byTopic[d.Topic].Last) {
				byTopic[d.Topic] = d
			}
		}
	}
	var out []record.Decision
	for _, r := range reasonsInOrder() {
		if d, ok := byTopic[string(r)]; ok && newest.Sub(d.Last) < stale {
			out = append(out, d)
		}
	}
	return out
}

// wanted reports whether a verdict is about a machine that would go but for it: not
// that it is as it should be, or that its pool doesn't ask for it.
func (a asker) wanted(c *karpenter.NodeClaim, n *corev1.Node, d record.Decision) bool {
	pods, _ := a.podsOn(n)
	_, outdated := a.outdated(c)
	switch d.Verdict {
	case "Going", "Starting", "NotEmpty", "NotDrifted", "Healthy", "NoCheaper", "TooLittle", "SpotToSpot", "Never", "WhenEmpty",
		"StaticNodePool", "NotSearched", "Replacement", "NotInitialized", "Nominated":
		return false
	case "ConsolidateAfter", "MinNodeLifetime":
		return len(pods) == 0 && d.Topic == string(karpenter.DisruptionReasonEmpty)
	case "NoPlace":
		return outdated && d.Topic == string(karpenter.DisruptionReasonDrifted)
	}
	switch karpenter.DisruptionReason(d.Topic) {
	case karpenter.DisruptionReasonEmpty:
		return len(pods) == 0
	case karpenter.DisruptionReasonUnderutilized:
		return len(pods) > 0
	case karpenter.DisruptionReasonDrifted:
		return outdated
	}
	return true
}

// outdated reports whether a machine is to be replaced by a newer one, and why.
func (a asker) outdated(c *karpenter.NodeClaim) (why string, ok bool) {
	if d := apimeta.FindStatusCondition(c.Status.Conditions, karpenter.ConditionDrifted); d != nil && d.Status == "True" {
		return d.Reason, true
	}
	if p := a.pool(c.Labels[karpenter.LabelNodePool]); p != nil {
		options, err := sugar.Parse(p.Annotations)
		age, bad := time.ParseDuration(options.SoftExpireAfter)
		if err == nil && bad == nil && age > 0 && a.TakenAt.Sub(c.CreationTimestamp.Time) >= age {
			return "softExpireAfter " + options.SoftExpireAfter, true
		}
	}
	return "", false
}

// unrecorded says what keeps an outdated machine as far as the objects tell.
func (a asker) unrecorded(c *karpenter.NodeClaim, n *corev1.Node, why string, add func(reason, code, message string, until time.Time)) {
	const reason = string(karpenter.DisruptionReasonDrifted)
	p := a.pool(c.Labels[karpenter.LabelNodePool])
	if p == nil && c.Labels[karpenter.LabelNodePool] == "" {
		add(reason, "Standalone", "it belongs to no NodePool, so that it is taken away only when it expires or somebody deletes it", time.Time{})
		return
	}
	if p == nil {
		add(reason, "NoNodePool", fmt.Sprintf("its NodePool %q is gone", c.Labels[karpenter.LabelNodePool]), time.Time{})
		return
	}
	options, _ := sugar.Parse(p.Annotations) // a fault is among the budgets
	if until, paused := options.PausedUntil(a.TakenAt); paused {
		add(reason, "Paused", fmt.Sprintf("NodePool %s is paused by %s: %s", p.Name, options.Pause.Author, options.Pause.Reason), until.UTC())
		return
	}
	if d := apimeta.FindStatusCondition(p.Status.Conditions, karpenter.ConditionNodeClaimsDrifted); d != nil && d.Reason == "AwaitingApproval" {
		add(reason, "Approval", d.Message, time.Time{})
		return
	}
	pods, _ := a.podsOn(n)
	for _, h := range a.holds(c, n, pods) {
		if h.Code != "Terminating" {
			add(reason, h.Code, strings.TrimPrefix(h.Scope+" ", " ")+h.Message, time.Time{})
			return
		}
	}
	for _, l := range a.budgets(p).Limits {
		if l.Reason == reason && l.Nodes == 0 {
			code := "Budget"
			if l.Until.IsZero() {
				code = "NoBudget"
			}
			add(reason, code, fmt.Sprintf("NodePool %s's budget allows none (%s)", p.Name, l.Budget), l.Until)
			return
		}
	}
	add(reason, "Turn", "it waits for its turn: "+why, time.Time{})
}
