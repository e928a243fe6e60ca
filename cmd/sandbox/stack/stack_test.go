package stack

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/testkit/await"
)

// One stack serves all tests, as a process can only have one.
type fixture struct {
	*Stack
	client client.WithWatch
	ec2    *ec2.Client
}

const limit = 30 * time.Second

// TestStack runs its parts in order, on one sandbox.
func TestStack(t *testing.T) {
	f := start(t)
	parts := []struct {
		name string
		run  func(*testing.T, fixture)
	}{
		{"a machine becomes a node and goes", testLifecycle},
		{"user data decides", testUserData},
		{"pods live and end", testPods},
		{"credentials are checked", testCredentials},
		{"many nodes and pods", testScale},
	}
	if scale() {
		parts = parts[len(parts)-1:]
	}
	for _, part := range parts {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, f) }) {
			break
		}
	}
}

// scale asks for the largest load that the sandbox is meant for, and nothing else.
func scale() bool { return os.Getenv("COPPICE_SCALE") == "1" }

func start(t *testing.T) fixture {
	t.Helper()
	began := time.Now()
	grace := 8 * time.Second
	if scale() {
		// 500 nodes that beat every 1.6 s would be the load by themselves.
		grace = 0
	}
	s, err := Up(t.Context(), Config{
		DataDir:   t.TempDir(),
		BootDelay: 50 * time.Millisecond, ShutdownDelay: 50 * time.Millisecond, ReadyDelay: 100 * time.Millisecond,
		NodeGrace: grace, Unthrottled: true,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	t.Logf("up after %s", time.Since(began).Round(time.Millisecond))
	c, err := client.NewWithWatch(s.REST, client.Options{Scheme: clientscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return fixture{Stack: s, client: c, ec2: awsClient(t, s.Endpoints.SecretAccessKey, s)}
}

func awsClient(t *testing.T, secret string, s *Stack) *ec2.Client {
	t.Helper()
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRegion(s.Endpoints.Region), config.WithBaseEndpoint(s.Endpoints.EC2),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(s.Endpoints.AccessKeyID, secret, "")))
	if err != nil {
		t.Fatal(err)
	}
	return ec2.NewFromConfig(cfg)
}

// userData is what a controller renders for AL2023, with further lines of the
// kubelet's settings.
func (f fixture) userData(cluster, kubelet string) string {
	return fmt.Sprintf(`MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    apiServerEndpoint: %s
    certificateAuthority: %s
    cidr: 10.100.0.0/16
    name: %s
  kubelet:
%s
--//--
`, f.Endpoints.APIServer, base64.StdEncoding.EncodeToString(f.control.CA), cluster, kubelet)
}

// launch starts instances through the AWS SDK, as a controller does, and returns
// their IDs.
func (f fixture) launch(t *testing.T, instanceType string, count int32, userData string) []string {
	t.Helper()
	ctx := t.Context()
	subnets, err := f.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{{Name: aws.String("tag:karpenter.sh/discovery"), Values: []string{"true"}}}})
	if err != nil {
		t.Fatal(err)
	}
	images, err := f.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{Owners: []string{"amazon"}, Filters: []ec2types.Filter{{Name: aws.String("architecture"), Values: []string{"x86_64"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(subnets.Subnets) == 0 || len(images.Images) == 0 {
		t.Fatalf("the account has %d subnets and %d images", len(subnets.Subnets), len(images.Images))
	}
	name := fmt.Sprintf("test-%d", time.Now().UnixNano())
	_, err = f.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: &name,
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId:  images.Images[0].ImageId,
			UserData: aws.String(base64.StdEncoding.EncodeToString([]byte(userData))),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var overrides []ec2types.FleetLaunchTemplateOverridesRequest
	for _, s := range subnets.Subnets {
		overrides = append(overrides, ec2types.FleetLaunchTemplateOverridesRequest{InstanceType: ec2types.InstanceType(instanceType), SubnetId: s.SubnetId})
	}
	out, err := f.ec2.CreateFleet(ctx, &ec2.CreateFleetInput{
		Type: ec2types.FleetTypeInstant,
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity: aws.Int32(count), DefaultTargetCapacityType: ec2types.DefaultTargetCapacityTypeOnDemand,
		},
		LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: &name, Version: aws.String("$Latest")},
			Overrides:                   overrides,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, set := range out.Instances {
		ids = append(ids, set.InstanceIds...)
	}
	if len(ids) != int(count) {
		t.Fatalf("launched %d of %d: %v", len(ids), count, out.Errors)
	}
	return ids
}

func (f fixture) terminate(t *testing.T, ids ...string) {
	t.Helper()
	if _, err := f.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids}); err != nil {
		t.Fatal(err)
	}
}

// remove ends instances and deletes all nodes, as a controller does.
func (f fixture) remove(t *testing.T, ids ...string) {
	t.Helper()
	f.terminate(t, ids...)
	if err := f.client.DeleteAllOf(t.Context(), &corev1.Node{}); err != nil {
		t.Fatal(err)
	}
	awaitAll(t, f, "the nodes to go", limit, &corev1.NodeList{}, readyNodes(0))
}

// awaitAll waits for a condition on all objects of a list.
func awaitAll[T client.Object](t *testing.T, f fixture, what string, limit time.Duration, list client.ObjectList, cond await.Condition[T], opts ...client.ListOption) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("%s is over", limit))
	defer cancel()
	if err := await.Objects(ctx, f.client, list, cond, opts...); err != nil {
		t.Fatalf("wait for %s: %v (machines that failed: %v)", what, err, f.Kubelets.Failures())
	}
}

func readyNodes(want int) await.Condition[*corev1.Node] {
	return func(nodes []*corev1.Node) (bool, string) {
		ready := 0
		for _, n := range nodes {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(n.Spec.Taints) == 0 {
					ready++
				}
			}
		}
		return len(nodes) == want && ready == want, fmt.Sprintf("%d nodes, %d of them ready and untainted", len(nodes), ready)
	}
}

func runningPods(want int) await.Condition[*corev1.Pod] {
	return func(pods []*corev1.Pod) (bool, string) {
		running, phases := 0, map[corev1.PodPhase]int{}
		for _, p := range pods {
			phases[p.Status.Phase]++
			if p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" && p.DeletionTimestamp == nil {
				running++
			}
		}
		return len(pods) == want && running == want, fmt.Sprintf("%d pods: %v", len(pods), phases)
	}
}

func deployment(name string, replicas int32, cpu, memory string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "pause", Image: "registry.k8s.io/pause:3.10",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
					}},
				}}},
			},
		},
	}
}

func testLifecycle(t *testing.T, f fixture) {
	ctx := t.Context()
	web := deployment("web", 3, "250m", "256Mi")
	if err := f.client.Create(ctx, web); err != nil {
		t.Fatal(err)
	}
	unschedulable := func(pods []*corev1.Pod) (bool, string) {
		n := 0
		for _, p := range pods {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
					n++
				}
			}
		}
		return n == 3, fmt.Sprintf("%d of %d unschedulable", n, len(pods))
	}
	awaitAll(t, f, "the pods to be unschedulable", limit, &corev1.PodList{}, unschedulable, client.MatchingLabels{"app": "web"})

	ids := f.launch(t, "m5.large", 1, f.userData("demo", `    config: {maxPods: 20}
    flags: ['--node-labels="team=a,karpenter.sh/nodepool=default"']`))
	awaitAll(t, f, "a ready node", limit, &corev1.NodeList{}, readyNodes(1))
	awaitAll(t, f, "the pods to run", limit, &corev1.PodList{}, runningPods(3), client.MatchingLabels{"app": "web"})

	var nodes corev1.NodeList
	if err := f.client.List(ctx, &nodes); err != nil {
		t.Fatal(err)
	}
	node := nodes.Items[0]
	var inst struct{ zone, zoneID, dns, ip string }
	for _, i := range f.EC2.Instances() {
		if i.ID == ids[0] {
			inst.zone, inst.zoneID, inst.dns, inst.ip = i.Zone, i.ZoneID, i.PrivateDNS, i.PrivateIP
		}
	}
	if node.Name != inst.dns || node.Spec.ProviderID != "aws:///"+inst.zone+"/"+ids[0] {
		t.Errorf("node %s has provider ID %s, want %s in %s", node.Name, node.Spec.ProviderID, ids[0], inst.zone)
	}
	for key, want := range map[string]string{
		"team": "a", "karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": "m5.large",
		"topology.kubernetes.io/zone": inst.zone, "topology.kubernetes.io/region": "us-west-2", "topology.k8s.aws/zone-id": inst.zoneID,
		"kubernetes.io/hostname": inst.dns, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
	} {
		if got := node.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	if node.Status.Capacity.Pods().Value() != 20 || node.Status.Capacity.Memory().Value() >= 8<<30 {
		t.Errorf("capacity is %v", node.Status.Capacity)
	}

	// A machine that reboots comes back as the same Node.
	if _, err := f.ec2.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: ids}); err != nil {
		t.Fatal(err)
	}
	awaitAll(t, f, "the node to be booted again", time.Minute, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string) {
		ok, why := readyNodes(1)(nodes)
		return ok && nodes[0].UID == node.UID && nodes[0].Status.NodeInfo.BootID != node.Status.NodeInfo.BootID, why
	})

	// A machine that ends without a drain takes its node along, and its pods are
	// made anew.
	f.terminate(t, ids...)
	awaitAll(t, f, "the node to go", 40*time.Second, &corev1.NodeList{}, readyNodes(0))
	if err := f.client.Delete(ctx, web, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	// Nothing is left to end the containers, so that the garbage collector of
	// pods has to notice that their node is gone; it takes its time.
	var pods corev1.PodList
	if err := f.client.List(ctx, &pods, client.MatchingLabels{"app": "web"}); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if err := client.IgnoreNotFound(f.client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))); err != nil {
			t.Fatal(err)
		}
	}
	awaitAll(t, f, "the pods to go", limit, &corev1.PodList{}, runningPods(0))
}

func testUserData(t *testing.T, f fixture) {
	bad := f.launch(t, "m5.large", 1, f.userData("other", "    flags: []"))
	worse := f.launch(t, "m5.large", 1, "#!/bin/sh\necho hello")
	good := f.launch(t, "m5.large", 1, f.userData("demo", `    config:
      registerWithTaints: [{key: dedicated, value: batch, effect: NoSchedule}]`))
	awaitAll(t, f, "one tainted node", limit, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string) {
		if len(nodes) != 1 {
			return false, fmt.Sprintf("%d nodes", len(nodes))
		}
		var taints []string
		for _, taint := range nodes[0].Spec.Taints {
			taints = append(taints, taint.ToString())
		}
		return strings.Join(taints, " ") == "dedicated=batch:NoSchedule", fmt.Sprint(taints)
	})
	got := map[string]string{}
	for _, failure := range f.Kubelets.Failures() {
		got[failure.Machine] = failure.Reason
	}
	if !strings.Contains(got[bad[0]], `cluster "other"`) || !strings.Contains(got[worse[0]], "is a script") || len(got) != 2 {
		t.Errorf("the machines failed for %v", got)
	}
	f.remove(t, append(append(bad, worse...), good...)...)
}

// silence makes the node look as the node lifecycle controller leaves it after
// missed heartbeats, and waits for the kubelet to set that right.
func silence(t *testing.T, f fixture) {
	t.Helper()
	var nodes corev1.NodeList
	if err := f.client.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		for j := range n.Status.Conditions {
			n.Status.Conditions[j].Status = corev1.ConditionUnknown
		}
		if err := f.client.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	awaitAll(t, f, "the node to be ready again", limit, &corev1.NodeList{}, readyNodes(len(nodes.Items)))
}

func testPods(t *testing.T, f fixture) {
	ctx := t.Context()
	ids := f.launch(t, "m5.xlarge", 1, f.userData("demo", "    flags: []"))
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: "default"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			Template: deployment("agent", 1, "10m", "10Mi").Spec.Template,
		},
	}
	ds.Spec.Template.Spec.HostNetwork = true
	ds.Spec.Template.Spec.InitContainers = []corev1.Container{
		{Name: "init", Image: "registry.k8s.io/pause:3.10"},
		{Name: "sidecar", Image: "registry.k8s.io/pause:3.10", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "default"},
		Spec:       batchv1.JobSpec{Template: deployment("job", 1, "10m", "10Mi").Spec.Template},
	}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	web := deployment("web", 10, "10m", "10Mi")
	for _, obj := range []client.Object{ds, job, web} {
		if err := f.client.Create(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	awaitAll(t, f, "all pods to run", limit, &corev1.PodList{}, runningPods(12))
	var pods corev1.PodList
	if err := f.client.List(ctx, &pods); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, p := range pods.Items {
		if p.Spec.HostNetwork != (p.Status.PodIP == p.Status.HostIP) {
			t.Errorf("pod %s has address %s on host %s", p.Name, p.Status.PodIP, p.Status.HostIP)
		}
		if other, ok := seen[p.Status.PodIP]; ok {
			t.Errorf("pods %s and %s share address %s", p.Name, other, p.Status.PodIP)
		}
		seen[p.Status.PodIP] = p.Name
		if p.Labels["app"] == "agent" {
			init := p.Status.InitContainerStatuses
			if len(init) != 2 || init[0].State.Terminated == nil || init[1].State.Running == nil {
				t.Errorf("init containers of the daemon are %v", init)
			}
		}
	}
	awaitAll(t, f, "the deployment to be available", limit, &appsv1.DeploymentList{}, func(ds []*appsv1.Deployment) (bool, string) {
		return len(ds) == 1 && ds[0].Status.AvailableReplicas == 10, fmt.Sprintf("%+v", ds[0].Status)
	})

	silence(t, f)
	// The node lifecycle controller declares the pods of a silent node not ready;
	// the kubelet takes that back.
	stale := pods.Items[0].DeepCopy()
	for i := range stale.Status.Conditions {
		if stale.Status.Conditions[i].Type == corev1.PodReady {
			stale.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	if err := f.client.Status().Update(ctx, stale); err != nil {
		t.Fatal(err)
	}
	awaitAll(t, f, "the pod to be ready again", limit, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string) {
		for _, p := range pods {
			for _, c := range p.Status.Conditions {
				if p.UID == stale.UID && c.Type == corev1.PodReady {
					return c.Status == corev1.ConditionTrue && p.Status.PodIP == stale.Status.PodIP, fmt.Sprintf("%+v", p.Status)
				}
			}
		}
		return false, "no such pod"
	})

	// A deleted pod of a Job keeps its object until the Job has counted it, so the
	// kubelet must report how it ended.
	old := types.UID("")
	for i := range pods.Items {
		if pods.Items[i].Labels["app"] == "job" {
			old = pods.Items[i].UID
			if err := f.client.Delete(ctx, &pods.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	// pause ends well when told to end, which completes the Job.
	awaitAll(t, f, "the job to complete", limit, &batchv1.JobList{}, func(jobs []*batchv1.Job) (bool, string) {
		return len(jobs) == 1 && jobs[0].Status.Succeeded == 1, fmt.Sprintf("%+v", jobs[0].Status)
	})
	awaitAll(t, f, "the deleted pod to go", limit, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string) {
		for _, p := range pods {
			if p.UID == old {
				return false, "it is " + string(p.Status.Phase)
			}
		}
		return true, ""
	})

	for _, obj := range []client.Object{ds, job, web} {
		if err := f.client.Delete(ctx, obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	awaitAll(t, f, "all pods to go", limit, &corev1.PodList{}, runningPods(0))
	f.remove(t, ids...)
}

func testCredentials(t *testing.T, f fixture) {
	_, err := awsClient(t, "not the secret", f.Stack).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
	if err == nil || strings.Contains(err.Error(), f.Endpoints.SecretAccessKey) {
		t.Errorf("a request with a wrong signature: %v", err)
	}
}

// testScale is a small load unless COPPICE_SCALE is 1, which makes it the largest
// that the sandbox is meant for. The times that it logs are those in
// docs/decisions/0001-own-fake-kubelets.md.
func testScale(t *testing.T, f fixture) {
	nodes, pods := 100, 400
	if scale() {
		nodes, pods = 500, 2000
	}
	began := time.Now()
	f.launch(t, "m5.xlarge", int32(nodes), f.userData("demo", "    flags: []"))
	awaitAll(t, f, "all nodes to be ready", 2*time.Minute, &corev1.NodeList{}, readyNodes(nodes))
	t.Logf("%d nodes ready after %s", nodes, time.Since(began).Round(100*time.Millisecond))
	began = time.Now()
	if err := f.client.Create(t.Context(), deployment("many", int32(pods), "500m", "256Mi")); err != nil {
		t.Fatal(err)
	}
	awaitAll(t, f, "all pods to run", 3*time.Minute, &corev1.PodList{}, runningPods(pods))
	t.Logf("%d pods running after %s", pods, time.Since(began).Round(100*time.Millisecond))
	// All nodes are still seen to live while everything was busy.
	awaitAll(t, f, "all nodes to be ready", limit, &corev1.NodeList{}, readyNodes(nodes))
}
