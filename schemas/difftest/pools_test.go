package difftest

// base is a valid object and the rules that are tried on it.
type base struct {
	name   string
	object string
	// update judges each change as an update of the object.
	update bool
	rules  []rule
}

func bases() []base {
	return []base{
		{name: "nodepool", object: pool, rules: append(poolRules(), templateRules()...)},
		{name: "nodepool update", object: pool, update: true, rules: poolTransitions()},
		{name: "static nodepool", object: staticPool, rules: staticRules()},
		{name: "static nodepool update", object: staticPool, update: true, rules: []rule{
			{name: "stays static", accept: []string{"spec replicas = 9", "spec limits = {nodes: 9}"}, reject: []string{"- spec replicas"}},
		}},
		{name: "nodeclaim", object: claim, rules: claimRules()},
		{name: "nodeclaim update", object: claim, update: true, rules: []rule{
			{name: "spec is fixed",
				accept: []string{"metadata labels = {a: b}", "spec expireAfter = 720h"},
				reject: []string{"spec expireAfter = 1h", "spec requirements += {key: a, operator: Exists}", "spec taints = [{key: a, effect: NoSchedule}]", "spec nodeClassRef name = other"}},
		}},
		{name: "ec2nodeclass", object: class, rules: append(classRules(), selectorRules()...)},
		{name: "nodeoverlay", object: overlay, rules: overlayRules()},
		{name: "capacitybuffer", object: buffer, rules: bufferRules()},
	}
}

const pool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    metadata: {labels: {example.com/team: web}, annotations: {example.com/note: hello}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
`

const staticPool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: static}
spec:
  replicas: 3
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
`

const claim = `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: general-x7k2p}
spec:
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
  resources: {requests: {cpu: 1, memory: 1Gi}}
  requirements:
  - {key: karpenter.sh/nodepool, operator: In, values: [general]}
`

func poolRules() []rule {
	return []rule{
		{name: "metadata",
			accept: []string{"metadata labels = {a: b}", "metadata annotations = {a/b: any text at all}", "metadata name = a.b-c", "metadata namespace = kube-system", "metadata finalizers = [example.com/x]", "metadata creationTimestamp = null", "- metadata name ; metadata generateName = a-"},
			reject: []string{"metadata name = A", "metadata name = a_b", "- metadata name", "metadata labels = {a: b c}", "metadata labels = {a/b/c: d}", "metadata labels = {a: 1}", "metadata annotations = {a b: c}", "metadata name = ''"}},
		{name: "parts",
			accept: []string{"extra = 1", "spec extra = 1", "spec template extra = {a: b}", "metadata extra = 1", "spec disruption = null", "spec limits = null"},
			reject: []string{"- spec", "- spec template", "spec = null", "spec template = null", "spec = []", "spec template spec = x", "- spec template spec"}},
		{name: "status",
			accept: []string{"status = {}", "status nodes = 3", "status resources = {cpu: 3}"},
			reject: []string{"status nodes = x", "status = x", "status conditions = [{type: Ready, status: 'True', lastTransitionTime: '2026-01-02T03:04:05Z'}]"}},
		{name: "weight",
			accept: []string{"spec weight = 1", "spec weight = 100", "spec weight = null"},
			reject: []string{"spec weight = 0", "spec weight = 101", "spec weight = -1", "spec weight = '5'", "spec weight = 1.5", "spec weight = 99999999999"}},
		{name: "replicas",
			accept: []string{"spec replicas = 0", "spec replicas = 2147483647"},
			reject: []string{"spec replicas = -1", "spec replicas = 2147483648", "spec replicas = '3'", "spec replicas = 1 ; spec weight = 5", "spec replicas = 1 ; spec limits = {cpu: 5}"}},
		{name: "limits",
			accept: []string{"spec limits = {}", "spec limits = {cpu: 10, memory: 10Gi, nodes: 5, nvidia.com/gpu: '4'}", "spec limits = {cpu: '1e3'}", "spec limits = {cpu: -1}", "spec limits = {cpu: '.5'}", "spec limits = {cpu: '1.'}", "spec limits = {'': 3}"},
			reject: []string{"spec limits = {cpu: abc}", "spec limits = {cpu: 10 Gi}", "spec limits = {cpu: true}", "spec limits = {cpu: 1.5}", "spec limits = {cpu: {}}", "spec limits = [cpu]", "spec limits = {cpu: ''}"}},
		{name: "consolidateAfter",
			accept: []string{"spec disruption = {consolidateAfter: Never}", "spec disruption = {consolidateAfter: 0s}", "spec disruption = {consolidateAfter: 1h30m10s}", "spec disruption = {consolidateAfter: 99999999999h}"},
			reject: []string{"spec disruption = {consolidateAfter: never}", "spec disruption = {consolidateAfter: 1d}", "spec disruption = {consolidateAfter: ''}", "spec disruption = {consolidateAfter: 30}", "spec disruption = {consolidateAfter: -1h}", "spec disruption = {consolidateAfter: 1.5h}", "spec disruption = {consolidateAfter: 100ms}"}},
		{name: "consolidateAfter left out",
			accept: []string{"spec disruption = {}", "spec disruption = {consolidationPolicy: WhenEmpty}"}},
		{name: "consolidationPolicy",
			accept: []string{"spec disruption = {consolidateAfter: 0s, consolidationPolicy: WhenEmpty}", "spec disruption = {consolidateAfter: 0s, consolidationPolicy: WhenEmptyOrUnderutilized}", "spec disruption = {consolidateAfter: 0s, consolidationPolicy: Balanced}"},
			reject: []string{"spec disruption = {consolidateAfter: 0s, consolidationPolicy: WhenUnderutilized}", "spec disruption = {consolidateAfter: 0s, consolidationPolicy: ''}", "spec disruption = {consolidateAfter: 0s, consolidationPolicy: whenempty}"}},
		{name: "budgets", accept: budgets("[]", "[{}]", "[{nodes: 10%}]", "[{nodes: 100%}]", "[{nodes: 0%}]", "[{nodes: '0'}]", "[{nodes: '100000'}]", "[{nodes: '5', schedule: '@daily', duration: 8h}]", "[{schedule: 0 9 * * mon-fri, duration: 8h30m}]", "[{schedule: '* * * * *', duration: 8h0m0s}]", "[{schedule: a b c d e, duration: 1m}]", "[{schedule: '@daily or so', duration: 1m}]", "[{nodes: '1', reasons: [Empty, Drifted, Underutilized]}]", "[{nodes: '1', reasons: []}]", list(50, "{nodes: '1'}")),
			reject: budgets("[{nodes: 101%}]", "[{nodes: '-1'}]", "[{nodes: 5}]", "[{nodes: 5.5%}]", "[{nodes: ''}]", "[{nodes: '5', schedule: '@daily'}]", "[{nodes: '5', duration: 8h}]", "[{schedule: '@reboot', duration: 8h}]", "[{schedule: '@every 1h', duration: 8h}]", "[{schedule: '* * * *', duration: 8h}]", "[{schedule: '', duration: 8h}]", "[{schedule: '@daily', duration: 30s}]", "[{schedule: '@daily', duration: 1h30s}]", "[{schedule: '@daily', duration: ''}]", "[{reasons: [Expired]}]", "[{reasons: [Empty, Empty]}]", "[{reasons: Empty}]", "{nodes: '1'}", "[null]", "[[]]", list(51, "{nodes: '1'}"), "[{reasons: "+list(51, "Empty")+"}]")},
		{name: "budget for unhealthy nodes", accept: budgets("[{reasons: [Unhealthy]}]")},
	}
}

func budgets(values ...string) []string {
	var out []string
	for _, v := range values {
		out = append(out, "spec disruption = {consolidateAfter: 0s, budgets: "+v+"}")
	}
	return out
}

// list writes a list of n times the same item.
func list(n int, item string) string {
	s := "["
	for i := range n {
		if i > 0 {
			s += ", "
		}
		s += item
	}
	return s + "]"
}

func poolTransitions() []rule {
	return []rule{
		{name: "stays dynamic", accept: []string{"spec weight = 5", "spec limits = {cpu: 5}", "spec template metadata labels = {a: b}"}, reject: []string{"spec replicas = 1", "spec replicas = 0"}},
		{name: "node class", accept: []string{"spec template spec nodeClassRef name = other"}, reject: []string{"spec template spec nodeClassRef kind = Other", "spec template spec nodeClassRef group = other.example.com"}},
	}
}

func staticRules() []rule {
	return []rule{
		{name: "limits", accept: []string{"spec limits = {}", "spec limits = {nodes: 5}", "spec limits = null"}, reject: []string{"spec limits = {cpu: 5}", "spec limits = {nodes: 5, cpu: 5}"}},
		{name: "weight", accept: []string{"spec weight = null"}, reject: []string{"spec weight = 5"}},
		{name: "disruption", accept: []string{"spec disruption = {consolidateAfter: Never}"}},
	}
}

// templateRules are about the nodes of a pool.
func templateRules() []rule {
	const spec = "spec template spec "
	rules := []rule{
		{name: "labels",
			accept: []string{"spec template metadata labels = {}", "spec template metadata labels = {karpenter.sh/capacity-type: spot}", "spec template metadata labels = {karpenter.k8s.aws/instance-family: m7i, karpenter.k8s.aws/placement-group-id: pg-1}", "spec template metadata labels = {example.com/a: ''}", "spec template metadata labels = {a b: c}", "spec template metadata labels = {kubernetes.io/os: linux}", "spec template metadata = {}", "- spec template metadata"},
			reject: []string{"spec template metadata labels = {karpenter.sh/nodepool: x}", "spec template metadata labels = {karpenter.sh/other: x}", "spec template metadata labels = {sub.karpenter.sh/x: y}", "spec template metadata labels = {notkarpenter.sh/x: y}", "spec template metadata labels = {karpenter.sh: y}", "spec template metadata labels = {karpenter.k8s.aws/instance-colour: y}", "spec template metadata labels = {sub.karpenter.k8s.aws/x: y}", "spec template metadata labels = {kubernetes.io/hostname: x}", "spec template metadata labels = {a: b c}", "spec template metadata labels = {a: 1}", "spec template metadata labels = {a: " + long(64) + "}", "spec template metadata labels = " + labels(101)}},
		{name: "many labels", accept: []string{"spec template metadata labels = " + labels(100)}},
		{name: "annotations",
			accept: []string{"spec template metadata annotations = {a/b: any text at all}", "spec template metadata annotations = {a b: c}"},
			reject: []string{"spec template metadata annotations = {a: 1}", "spec template metadata annotations = [a]"}},
		{name: "nodepool label", reject: []string{spec + "requirements = [{key: karpenter.sh/nodepool, operator: Exists}]"}},
		{name: "requirements are required", reject: []string{"- spec template spec requirements", spec + "requirements = null"}},
		{name: "node class is required", reject: []string{"- spec template spec nodeClassRef"}},
		{name: "no resources", accept: []string{spec + "resources = {requests: {cpu: 1}}"}},
	}
	return append(rules, nodeRules(spec)...)
}

func long(n int) string {
	s := ""
	for range n {
		s += "a"
	}
	return s
}

func labels(n int) string {
	s := "{"
	for i := range n {
		if i > 0 {
			s += ", "
		}
		s += "l" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + ": x"
	}
	return s + "}"
}

func claimRules() []rule {
	rules := []rule{
		{name: "parts", accept: []string{"spec extra = 1", "- spec resources"}, reject: []string{"- spec", "- spec requirements", "- spec nodeClassRef"}},
		{name: "nodepool label", accept: []string{"spec requirements = [{key: karpenter.sh/nodepool, operator: Exists}]"}},
		{name: "resources",
			accept: []string{"spec resources = {}", "spec resources requests = {cpu: 100m, pods: '5'}"},
			reject: []string{"spec resources requests = {cpu: lots}", "spec resources = 5"}},
		{name: "conditions", accept: []string{
			"status conditions = [{type: Ready, status: 'True', lastTransitionTime: '2026-01-02T03:04:05Z'}]",
			"status conditions = [{type: Ready, status: Unknown, reason: '', message: '', lastTransitionTime: '2026-01-02T03:04:05Z'}]"},
			reject: []string{
				"status conditions = [{type: Ready, status: 'Yes', lastTransitionTime: '2026-01-02T03:04:05Z'}]",
				"status conditions = [{type: Ready, status: 'True'}]",
				"status conditions = [{type: Ready, status: 'True', reason: a b, lastTransitionTime: '2026-01-02T03:04:05Z'}]",
				"status conditions = [{type: A, status: 'True', lastTransitionTime: '2026-01-02T03:04:05Z'}, {type: A, status: 'True', lastTransitionTime: '2026-01-02T03:04:05Z'}]"}},
		{name: "status",
			accept: []string{"status capacity = {cpu: 4}", "status lastPodEventTime = '2026-01-02T03:04:05Z'", "status = {}"},
			reject: []string{"status nodeName = 5", "status capacity = {cpu: x}", "status lastPodEventTime = yesterday"}},
	}
	return append(rules, nodeRules("spec ")...)
}

// nodeRules are those that a pool's template and a claim share.
func nodeRules(spec string) []rule {
	set := func(field string, values ...string) []string {
		var out []string
		for _, v := range values {
			out = append(out, spec+field+" = "+v)
		}
		return out
	}
	requirement := func(values ...string) []string {
		var out []string
		for _, v := range values {
			out = append(out, spec+"requirements = ["+v+"]")
		}
		return out
	}
	return []rule{
		{name: "node class",
			accept: set("nodeClassRef", "{group: g, kind: k, name: x}", "{group: g, kind: k, name: x, extra: 1}"),
			reject: set("nodeClassRef", "{group: '', kind: k, name: x}", "{group: g, kind: '', name: x}", "{group: g, kind: k, name: ''}", "{group: a/b, kind: k, name: x}", "{group: g, kind: k}", "{kind: k, name: x}", "{}", "null")},
		{name: "expireAfter",
			accept: set("expireAfter", "Never", "1h", "720h0m0s", "null"),
			reject: set("expireAfter", "1d", "forever", "''", "3600", "-1h")},
		{name: "terminationGracePeriod",
			accept: set("terminationGracePeriod", "1h", "30s", "1h30m10s", "null"),
			reject: set("terminationGracePeriod", "Never", "1d", "''", "30", "100ms")},
		{name: "taints",
			accept: set("taints", "[]", "[{key: a, effect: NoSchedule}]", "[{key: example.com/a, value: b, effect: NoExecute}, {key: example.com/a, value: b, effect: NoExecute}]", "[{key: a, effect: PreferNoSchedule, timeAdded: '2026-01-02T03:04:05Z'}]", "[{key: a, effect: NoSchedule, extra: 1}]"),
			reject: set("taints", "[{key: a}]", "[{effect: NoSchedule}]", "[{key: '', effect: NoSchedule}]", "[{key: a b, effect: NoSchedule}]", "[{key: a, effect: Never}]", "[{key: a, effect: ''}]", "[{key: a, value: b c, effect: NoSchedule}]", "[{key: a, value: '', effect: NoSchedule}]", "[{key: a, effect: NoSchedule, timeAdded: now}]", "[null]", "{key: a}")},
		{name: "startupTaints",
			accept: set("startupTaints", "[{key: a, effect: NoSchedule}]"),
			reject: set("startupTaints", "[{key: a}]", "[{key: a, effect: Maybe}]")},
		{name: "operators", accept: requirement(
			"{key: a, operator: In, values: [b]}", "{key: a, operator: NotIn, values: [b, c]}", "{key: a, operator: NotIn}", "{key: a, operator: NotIn, values: []}",
			"{key: a, operator: Exists}", "{key: a, operator: Exists, values: [b]}", "{key: a, operator: DoesNotExist}", "{key: a, operator: Gt, values: ['3']}",
			"{key: a, operator: Lt, values: ['0']}", "{key: a, operator: Gte, values: ['+3']}", "{key: a, operator: Lte, values: ['007']}", "{key: a, operator: Gt, values: ['-0']}", "{key: a, operator: In, values: [''] }", "{key: a, operator: In, values: ["+long(70)+"]}"),
			reject: requirement(
				"{key: a, operator: In}", "{key: a, operator: In, values: []}", "{key: a, operator: in, values: [b]}", "{key: a, values: [b]}", "{operator: Exists}",
				"{key: a, operator: Gt}", "{key: a, operator: Gt, values: []}", "{key: a, operator: Gt, values: ['1', '2']}", "{key: a, operator: Gt, values: [many]}", "{key: a, operator: Lt, values: ['-1']}",
				"{key: a, operator: Gte, values: ['1.5']}", "{key: a, operator: Lte, values: ['9223372036854775808']}", "{key: a, operator: Gt, values: ['']}", "{key: a, operator: Gt, values: [' 1']}", "{key: a, operator: In, values: [1]}", "{key: a, operator: In, values: b}", "{key: a, operator: ''}")},
		{name: "minValues",
			accept: requirement("{key: a, operator: In, values: [b, c], minValues: 2}", "{key: a, operator: Exists, minValues: 50}", "{key: a, operator: NotIn, values: [b], minValues: 5}", "{key: a, operator: Gt, values: ['1'], minValues: 5}"),
			reject: requirement("{key: a, operator: In, values: [b, c], minValues: 3}", "{key: a, operator: Exists, minValues: 0}", "{key: a, operator: Exists, minValues: 51}", "{key: a, operator: Exists, minValues: x}")},
		{name: "keys",
			accept: requirement("{key: example.com/a, operator: Exists}", "{key: A.b_c-d, operator: Exists}", "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}", "{key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: ['4']}", "{key: karpenter.k8s.aws/instance-tenancy, operator: Exists}", "{key: karpenter.k8s.aws/capacity-reservation-id, operator: Exists}", "{key: kubernetes.io/os, operator: Exists}", "{key: topology.k8s.aws/zone-id, operator: Exists}", "{key: a/"+long(100)+", operator: Exists}"),
			reject: requirement("{key: '', operator: Exists}", "{key: a b, operator: Exists}", "{key: a/b/c, operator: Exists}", "{key: -a, operator: Exists}", "{key: Example.com/a, operator: Exists}", "{key: karpenter.sh/other, operator: Exists}", "{key: x.karpenter.sh/other, operator: Exists}", "{key: karpenter.k8s.aws/other, operator: Exists}", "{key: karpenter.k8s.aws, operator: Exists}", "{key: kubernetes.io/hostname, operator: Exists}", "{key: "+long(317)+", operator: Exists}")},
		{name: "many requirements",
			accept: set("requirements", "[]", list(100, "{key: a, operator: Exists}")),
			reject: set("requirements", list(101, "{key: a, operator: Exists}"), "{}", "[null]", "[a]")},
	}
}
