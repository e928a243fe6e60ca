package difftest

const class = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: prod}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: prod}}]
`

const overlay = `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: cheaper}
spec:
  requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [m7i]}]
`

const buffer = `
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare, namespace: web}
spec:
  podTemplateRef: {name: chunk}
  replicas: 3
`

// changes sets one field of a spec to each of some values.
func changes(field string, values ...string) []string {
	var out []string
	for _, v := range values {
		out = append(out, "spec "+field+" = "+v)
	}
	return out
}

func classRules() []rule {
	return []rule{
		{name: "parts",
			accept: []string{"spec extra = 1", "- spec"},
			reject: []string{"spec = x", "- spec amiSelectorTerms", "- spec subnetSelectorTerms", "- spec securityGroupSelectorTerms", "spec = {}"}},
		{name: "role or instance profile",
			accept: []string{"- spec role ; spec instanceProfile = p"},
			reject: []string{"- spec role", "spec instanceProfile = p", "spec role = ''", "- spec role ; spec instanceProfile = ''", "spec role = 5"}},
		{name: "amiFamily",
			accept: append(changes("amiFamily", "AL2023", "Custom", "null"), "spec amiFamily = AL2 ; spec amiSelectorTerms = [{id: ami-1}]", "spec amiFamily = AL2 ; spec amiSelectorTerms = [{alias: al2@v1}]", "spec amiFamily = Bottlerocket ; spec amiSelectorTerms = [{alias: bottlerocket@v1}]", "spec amiFamily = Windows2019 ; spec amiSelectorTerms = [{alias: windows2019@latest}]", "spec amiFamily = Windows2022 ; spec amiSelectorTerms = [{alias: windows2022@latest}]", "spec amiFamily = Windows2025 ; spec amiSelectorTerms = [{alias: windows2025@latest}]"),
			reject: append(changes("amiFamily", "AL2", "Bottlerocket", "Windows2022", "Ubuntu", "''", "al2023"), "spec amiSelectorTerms = [{id: ami-1}]", "spec amiFamily = AL2023 ; spec amiSelectorTerms = [{alias: al2@v1}]", "spec amiFamily = AL2023 ; spec amiSelectorTerms = [{alias: bottlerocket@v1}]", "spec amiFamily = AL2 ; spec amiSelectorTerms = [{alias: windows2019@latest}]", "spec amiFamily = Windows2019 ; spec amiSelectorTerms = [{alias: windows2022@latest}]", "spec amiFamily = Windows2022 ; spec amiSelectorTerms = [{alias: windows2025@latest}]")},
		{name: "tags",
			accept: changes("tags", "{}", "{a: b}", "{a: ''}", "{karpenter.sh/discovery: prod}", "{aws:x: b}", "{kubernetes.io/other: x}"),
			reject: changes("tags", "{'': a}", "{eks:eks-cluster-name: x}", "{kubernetes.io/cluster/prod: owned}", "{kubernetes.io/clusters: x}", "{karpenter.sh/nodepool: x}", "{karpenter.sh/nodeclaim: x}", "{karpenter.k8s.aws/ec2nodeclass: x}", "{a: 1}", "[a]")},
		{name: "kubelet",
			accept: changes("kubelet", "{}", "{maxPods: 110}", "{maxPods: -1}", "{maxPods: default_enis * 10}", "{podsPerCore: 10}", "{clusterDNS: [10.0.0.10]}", "{clusterDNS: dns}", "{kubeReserved: {cpu: 100m}}", "{kubeReserved: {cpu: -100m}}", "{kubeReserved: {gpu: '1'}}", "{systemReserved: {pid: '100'}}", "{evictionHard: {memory.available: 5%}}", "{evictionHard: {memory: 5%}}", "{evictionSoft: {memory.available: 5%}}", "{evictionSoftGracePeriod: {memory.available: 1m}}", "{evictionSoft: {memory.available: 5%}, evictionSoftGracePeriod: {memory.available: 1m}}", "{imageGCHighThresholdPercent: 80, imageGCLowThresholdPercent: 70}", "{imageGCHighThresholdPercent: 70, imageGCLowThresholdPercent: 80}", "{imageGCHighThresholdPercent: 101}", "{cpuCFSQuota: true}", "{featureGates: {A: true}}", "{evictionMaxPodGracePeriod: 5}", "{registerWithTaints: []}", "null"),
			reject: changes("kubelet", "[]", "5", "text")},
		{name: "switches",
			accept: []string{"spec associatePublicIPAddress = true", "spec detailedMonitoring = false", "spec ipPrefixCount = 0", "spec context = x", "spec userData = x", "spec instanceStorePolicy = RAID0"},
			reject: []string{"spec associatePublicIPAddress = 'yes'", "spec detailedMonitoring = 1", "spec ipPrefixCount = -1", "spec ipPrefixCount = x", "spec context = 1", "spec userData = 1", "spec instanceStorePolicy = RAID1"}},
		{name: "block devices",
			accept: changes("blockDeviceMappings", "[]", "[{}]", "[{deviceName: /dev/xvda}]", "[{ebs: {volumeSize: 100Gi}}]", "[{ebs: {snapshotID: snap-1}}]", "[{ebs: {snapshotID: ''}}]", "[{rootVolume: true}, {rootVolume: false}, {}]", "[{ebs: {snapshotID: snap-1, volumeInitializationRate: 100}}]", "[{ebs: {volumeSize: 1Gi, iops: -5, throughput: 0, encrypted: true, kmsKeyID: k, deleteOnTermination: false}}]", list(50, "{}")),
			reject: changes("blockDeviceMappings", "[{rootVolume: true}, {rootVolume: true}]", "[{ebs: {}}]", "[{ebs: {iops: 3000}}]", "[{ebs: {volumeSize: 1Gi, volumeInitializationRate: 100}}]", "[{ebs: {snapshotID: '', volumeInitializationRate: 100}}]", "[{ebs: {snapshotID: snap-1, volumeInitializationRate: 99}}]", "[{ebs: {snapshotID: snap-1, volumeInitializationRate: 301}}]", "[{ebs: {volumeSize: 1Gi, volumeType: gp4}}]", "[{ebs: {volumeSize: 1Gi, iops: x}}]", "[null]", list(51, "{}"))},
		{name: "volume size",
			accept: sizes("1Gi", "9999Gi", "10000Gi", "58999Gi", "59000Gi", "1G", "63999G", "64000G", "Ti", "1Ti", "9Ti", "10Ti", "57Ti", "58Ti", "T", "1T", "59T", "64T"),
			reject: sizes("0Gi", "59001Gi", "60000Gi", "01Gi", "64001G", "0Ti", "18Ti", "59Ti", "65T", "0T", "100Mi", "100", "1.5Gi", "''", "100gi", "100GiB")},
		{name: "metadata options",
			accept: changes("metadataOptions", "{}", "{httpEndpoint: disabled}", "{httpProtocolIPv6: enabled}", "{httpPutResponseHopLimit: 64}", "{httpTokens: optional}", "null"),
			reject: changes("metadataOptions", "{httpEndpoint: 'off'}", "{httpProtocolIPv6: 'on'}", "{httpPutResponseHopLimit: 0}", "{httpPutResponseHopLimit: 65}", "{httpPutResponseHopLimit: '1'}", "{httpTokens: never}")},
		{name: "network interfaces",
			accept: changes("networkInterfaces", "[]", interfaces("0 0 interface"), interfaces("0 0 interface", "1 0 efa-only", "2 0 efa-only"), interfaces("0 1 efa-only", "0 0 interface")),
			reject: changes("networkInterfaces", interfaces("0 0 efa-only"), interfaces("0 1 interface"), interfaces("1 0 interface"), interfaces("0 0 interface", "0 0 interface"), interfaces("0 0 interface", "0 1 efa-only", "0 2 efa-only"), interfaces("0 0 other"), interfaces("-1 0 interface"), "[{networkCardIndex: 0, deviceIndex: 0}]", "[{deviceIndex: 0, interfaceType: interface}]")},
		{name: "connection tracking",
			accept: changes("connectionTracking", "{tcpEstablishedTimeout: 60}", "{tcpEstablishedTimeout: 432000}", "{udpStreamTimeout: 180}", "{udpTimeout: 30}"),
			reject: changes("connectionTracking", "{}", "{tcpEstablishedTimeout: 59}", "{tcpEstablishedTimeout: 432001}", "{udpStreamTimeout: 59}", "{udpStreamTimeout: 181}", "{udpTimeout: 29}", "{udpTimeout: 61}", "{other: 3}")},
		{name: "cpu options",
			accept: changes("cpuOptions", "{}", "{nestedVirtualization: enabled}", "{nestedVirtualization: disabled}", "{other: 1}"),
			reject: changes("cpuOptions", "{nestedVirtualization: true}", "{nestedVirtualization: 'on'}")},
		{name: "enclaves",
			accept: changes("enclaveOptions", "{enabled: true}", "{enabled: false}"),
			reject: changes("enclaveOptions", "{}", "{enabled: 'yes'}")},
		{name: "placement group",
			accept: changes("placementGroupSelector", "{name: x}", "{id: pg-1a}"),
			reject: changes("placementGroupSelector", "{}", "{name: x, id: pg-1a}", "{name: ''}", "{id: pg-}", "{id: xpg-1}")},
		{name: "status",
			accept: []string{"status subnets = [{id: a, zone: b}]", "status amis = [{id: a, requirements: []}]", "status conditions = []",
				"status capacityReservations = [{id: cr-1, availabilityZone: a, instanceMatchCriteria: open, instanceType: t, ownerID: '123456789012'}]",
				"status conditions = [{type: A, status: 'True', reason: R, message: '', lastTransitionTime: '2026-01-02T03:04:05Z'}, {type: A, status: 'True', reason: R, message: '', lastTransitionTime: '2026-01-02T03:04:05Z'}]"},
			reject: []string{"status subnets = [{id: a}]", "status amis = [{id: a}]", "status securityGroups = [{name: a}]",
				"status capacityReservations = [{id: cr-1}]",
				"status capacityReservations = [{id: cr-1, availabilityZone: a, instanceMatchCriteria: open, instanceType: t, ownerID: '123456789012', state: gone}]",
				"status conditions = [{type: A, status: 'True', reason: '', message: '', lastTransitionTime: '2026-01-02T03:04:05Z'}]"}},
	}
}

func sizes(values ...string) []string {
	var out []string
	for _, v := range values {
		out = append(out, "spec blockDeviceMappings = [{ebs: {volumeSize: "+v+"}}]")
	}
	return out
}

// interfaces writes network interfaces given as "CARD DEVICE TYPE".
func interfaces(values ...string) string {
	s := "["
	for i, v := range values {
		if i > 0 {
			s += ", "
		}
		card, rest, _ := cut(v)
		device, kind, _ := cut(rest)
		s += "{networkCardIndex: " + card + ", deviceIndex: " + device + ", interfaceType: " + kind + "}"
	}
	return s + "]"
}

func cut(s string) (string, string, bool) {
	for i := range s {
		if s[i] == ' ' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

func selectorRules() []rule {
	tags := "{" + labels(20)[1:]
	tooMany := "{" + labels(21)[1:]
	return []rule{
		{name: "subnets",
			accept: changes("subnetSelectorTerms", "[{id: subnet-1}]", "[{id: xsubnet-1}]", "[{tags: {a: '*'}}]", "[{tags: "+tags+"}]", "[{id: subnet-1}, {tags: {a: b}}]", "[{id: subnet-1, tags: {a: b}}, {id: subnet-2}]", "[{tags: {}}]", list(30, "{id: subnet-1}")),
			reject: changes("subnetSelectorTerms", "[]", "[{}]", "[{id: subnet-1}, {}]", "[{id: subnet-1, tags: {a: b}}]", "[{id: subnet}]", "[{tags: {a: ''}}]", "[{tags: {'': b}}]", "[{tags: "+tooMany+"}]", "[{name: x}]", "null", list(31, "{id: subnet-1}"))},
		{name: "security groups",
			accept: changes("securityGroupSelectorTerms", "[{id: sg-1}]", "[{name: x}]", "[{name: ''}]", "[{tags: {a: b}}]", "[{id: sg-1, name: x}, {tags: {a: b}}]", list(30, "{id: sg-1}")),
			reject: changes("securityGroupSelectorTerms", "[]", "[{}]", "[{id: sg-1, name: x}]", "[{id: sg-1, tags: {a: b}}]", "[{name: x, tags: {a: b}}]", "[{id: s-1}]", "[{tags: {a: ''}}]", "null", list(31, "{id: sg-1}"))},
		{name: "capacity reservations",
			accept: changes("capacityReservationSelectorTerms", "[{id: cr-1}]", "[{tags: {a: b}}]", "[{instanceMatchCriteria: open}]", "[{tags: {a: b}, ownerID: '123456789012', instanceMatchCriteria: targeted}]", "[{id: cr-1, tags: {a: b}}, {id: cr-2}]", "null"),
			reject: changes("capacityReservationSelectorTerms", "[]", "[{}]", "[{ownerID: '123456789012'}]", "[{id: cr-1, tags: {a: b}}]", "[{id: cr-1, ownerID: '123456789012'}]", "[{id: cr-1, instanceMatchCriteria: open}]", "[{id: xcr-1}]", "[{tags: {a: b}, ownerID: '12'}]", "[{instanceMatchCriteria: closed}]", "[{tags: {a: ''}}]", list(31, "{id: cr-1}"))},
		{name: "images",
			accept: []string{"spec amiFamily = AL2023 ; spec amiSelectorTerms = [{id: ami-1}, {name: x, owner: self}, {tags: {a: b}}, {ssmParameter: /x}]", "spec amiFamily = AL2023 ; spec amiSelectorTerms = [{id: ami-1, ssmParameter: /x}]", "spec amiSelectorTerms = [{alias: al2023@latest, ssmParameter: /x}]", "spec amiFamily = Custom ; spec amiSelectorTerms = " + list(30, "{id: ami-1}")},
			reject: append(changes("amiSelectorTerms", "[]", "null", "[{}]", "[{alias: al2023@latest}, {id: ami-1}]", "[{alias: al2023@latest, id: ami-1}]", "[{alias: al2023@latest, tags: {a: b}}]", "[{alias: al2023@latest, name: x}]", "[{alias: al2023@latest, owner: x}]"),
				"spec amiFamily = AL2 ; spec amiSelectorTerms = [{id: ami-1, name: x}]", "spec amiFamily = AL2 ; spec amiSelectorTerms = [{id: ami-1, tags: {a: b}}]", "spec amiFamily = AL2 ; spec amiSelectorTerms = [{id: ami-1, owner: self}]", "spec amiFamily = AL2 ; spec amiSelectorTerms = [{owner: self}]", "spec amiFamily = AL2 ; spec amiSelectorTerms = [{id: am-1}]", "spec amiFamily = AL2 ; spec amiSelectorTerms = [{tags: {a: ''}}]", "spec amiFamily = AL2 ; spec amiSelectorTerms = "+list(31, "{id: ami-1}"))},
		{name: "aliases",
			accept: aliases("al2@latest", "al2@v1", "al2023@v20250116", "bottlerocket@v1.20.0", "windows2019@latest", "windows2022@latest", "windows2025@latest", "al2023@a@b"),
			reject: aliases("al2", "al2@", "ubuntu@latest", "AL2@latest", "windows2019@v1", "windows2022@1", "windows2025@latest2", "@latest", "al2023@"+long(30), "''", "al 2@x")},
	}
}

func aliases(values ...string) []string {
	var out []string
	for _, v := range values {
		if v != "''" {
			v = "'" + v + "'"
		}
		out = append(out, "spec amiSelectorTerms = [{alias: "+v+"}]")
	}
	return out
}

func overlayRules() []rule {
	requirement := func(values ...string) []string {
		var out []string
		for _, v := range values {
			out = append(out, "spec requirements = ["+v+"]")
		}
		return out
	}
	return []rule{
		{name: "parts", accept: []string{"spec extra = 1", "spec requirements = []"}, reject: []string{"- spec", "- spec requirements", "spec requirements = " + list(101, "{key: a, operator: Exists}")}},
		{name: "price",
			accept: changes("price", "'1'", "'0'", "'1.25'", "null"),
			reject: changes("price", "'-1'", "'1.'", "'.5'", "1", "''", "'1e3'", "10%")},
		{name: "price adjustment",
			accept: changes("priceAdjustment", "'+1'", "'-0.5'", "'+.5'", "+10%", "+250.5%", "-15%", "-99.9%", "-100%"),
			reject: changes("priceAdjustment", "'1'", "10%", "-101%", "-100.5%", "'+'", "''", "'+1.'", "++1", "-150%")},
		{name: "price or adjustment", reject: []string{"spec price = '1' ; spec priceAdjustment = '+1'"}},
		{name: "capacity",
			accept: changes("capacity", "{}", "{example.com/x: 1}", "{hugepages-2Mi: 100Mi}"),
			reject: changes("capacity", "{cpu: 1}", "{memory: 1Gi}", "{ephemeral-storage: 1Gi}", "{pods: 5}", "{example.com/x: lots}")},
		{name: "weight",
			accept: changes("weight", "1", "10000"),
			reject: changes("weight", "0", "10001", "x")},
		{name: "requirements",
			accept: requirement("{key: karpenter.sh/nodepool, operator: In, values: [a]}", "{key: a, operator: NotIn, values: [b]}", "{key: a, operator: Exists}", "{key: a, operator: Gt, values: ['3']}", "{key: karpenter.k8s.aws/ec2nodeclass, operator: Exists}", "{key: a, operator: Exists, minValues: 5}"),
			reject: requirement("{key: a, operator: NotIn}", "{key: a, operator: NotIn, values: []}", "{key: a, operator: In}", "{key: a, operator: Gt, values: [x]}", "{key: a, operator: Lt}", "{key: karpenter.k8s.aws/instance-tenancy, operator: Exists}", "{key: karpenter.k8s.aws/placement-group-id, operator: Exists}", "{key: karpenter.k8s.aws/capacity-reservation-id, operator: Exists}", "{key: karpenter.sh/other, operator: Exists}", "{key: kubernetes.io/hostname, operator: Exists}", "{key: a b, operator: Exists}", "{key: a}")},
	}
}

func bufferRules() []rule {
	return []rule{
		{name: "parts", accept: []string{"spec = {}", "spec extra = 1", "- metadata namespace"}, reject: []string{"- spec", "spec = x"}},
		{name: "references",
			accept: []string{"spec limits = {cpu: 5} ; - spec replicas", "- spec podTemplateRef ; spec scalableRef = {kind: Deployment, name: x}", "- spec podTemplateRef ; spec scalableRef = {apiGroup: apps, kind: Deployment, name: x} ; spec percentage = 10"},
			reject: []string{"- spec replicas", "spec scalableRef = {kind: Deployment, name: x}", "spec podTemplateRef = {}", "spec podTemplateRef = {name: ''}", "- spec podTemplateRef ; spec scalableRef = {kind: Deployment}", "- spec podTemplateRef ; spec scalableRef = {kind: '', name: x}", "- spec podTemplateRef ; spec scalableRef = {kind: Deployment, name: ''}"}},
		{name: "numbers",
			accept: changes("replicas", "0", "1000"),
			reject: append(changes("replicas", "-1", "x", "1.5"), changes("percentage", "-1", "10%")...)},
		{name: "limits", accept: changes("limits", "{cpu: 5}", "{}"), reject: changes("limits", "{cpu: x}")},
		{name: "strategy", accept: changes("provisioningStrategy", "other", "null"), reject: changes("provisioningStrategy", "5")},
		{name: "status", accept: []string{"status replicas = 3", "status podTemplateRef = {name: x}"}, reject: []string{"status replicas = x", "status podTemplateRef = {}"}},
	}
}
