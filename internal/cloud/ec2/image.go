package ec2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// variant is what an image has drivers for.
type variant string

const (
	standard variant = "standard"
	nvidia   variant = "nvidia"
	neuron   variant = "neuron"
)

// requirements say which instance types need this variant.
func (v variant) requirements() []corev1.NodeSelectorRequirement {
	has := func(key string, op corev1.NodeSelectorOperator) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: op}
	}
	switch v {
	case nvidia:
		return []corev1.NodeSelectorRequirement{has(aws.LabelInstanceGPUCount, corev1.NodeSelectorOpExists)}
	case neuron:
		return []corev1.NodeSelectorRequirement{has(aws.LabelInstanceAcceleratorCount, corev1.NodeSelectorOpExists)}
	}
	return []corev1.NodeSelectorRequirement{
		has(aws.LabelInstanceAcceleratorCount, corev1.NodeSelectorOpDoesNotExist),
		has(aws.LabelInstanceGPUCount, corev1.NodeSelectorOpDoesNotExist),
	}
}

// imageParameter is a public SSM parameter that holds an image's ID.
type imageParameter struct {
	name     string
	variants []variant // what the image is good for
}

// aliasParameters are where the images of an alias are published, for the control
// plane's minor version.
//
//	https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html
//	https://bottlerocket.dev/en/os/latest/#/install/quickstart/aws/
func aliasParameters(alias, version, minor string) ([]imageParameter, error) {
	const eks = "/aws/service/eks/optimized-ami/"
	pinned := func(latest, format string, args ...any) string {
		if version == "latest" {
			return latest
		}
		return fmt.Sprintf(format, args...)
	}
	switch alias {
	case "al2023":
		var out []imageParameter
		for _, x := range []struct {
			arch string
			v    variant
		}{{"x86_64", standard}, {"x86_64", nvidia}, {"x86_64", neuron}, {"arm64", standard}, {"arm64", nvidia}} {
			name := pinned("recommended", "amazon-eks-node-al2023-%s-%s-%s-%s", x.arch, x.v, minor, version)
			out = append(out, imageParameter{
				fmt.Sprintf("%s%s/amazon-linux-2023/%s/%s/%s/image_id", eks, minor, x.arch, x.v, name), []variant{x.v}})
		}
		return out, nil
	case "al2":
		if number, err := strconv.Atoi(strings.TrimPrefix(minor, "1.")); err != nil || number >= 33 {
			return nil, &aliasError{fmt.Sprintf("there are no AL2 images for Kubernetes %s (the last is 1.32); use al2023", minor)}
		}
		var out []imageParameter
		for _, x := range []struct {
			suffix, prefix string
			v              []variant
		}{
			{"", "amazon-eks-node-", []variant{standard}},
			{"-arm64", "amazon-eks-arm64-node-", []variant{standard}},
			{"-gpu", "amazon-eks-gpu-node-", []variant{nvidia, neuron}},
		} {
			name := pinned("recommended", "%s%s-%s", x.prefix, minor, version)
			out = append(out, imageParameter{fmt.Sprintf("%s%s/amazon-linux-2%s/%s/image_id", eks, minor, x.suffix, name), x.v})
		}
		return out, nil
	case "bottlerocket":
		release := strings.TrimPrefix(version, "v")
		var out []imageParameter
		for _, arch := range []string{"x86_64", "arm64"} {
			out = append(out,
				imageParameter{fmt.Sprintf("/aws/service/bottlerocket/aws-k8s-%s/%s/%s/image_id", minor, arch, release), []variant{standard, neuron}},
				imageParameter{fmt.Sprintf("/aws/service/bottlerocket/aws-k8s-%s-nvidia/%s/%s/image_id", minor, arch, release), []variant{nvidia}})
		}
		return out, nil
	case "windows2019", "windows2022", "windows2025":
		return []imageParameter{{fmt.Sprintf("/aws/service/ami-windows-latest/Windows_Server-%s-English-Core-EKS_Optimized-%s/image_id",
			strings.TrimPrefix(alias, "windows"), minor), []variant{standard}}}, nil
	}
	return nil, &aliasError{fmt.Sprintf("alias family %q is none of al2, al2023, bottlerocket, windows2019, windows2022, windows2025", alias)}
}

// aliasError says that an alias can't be used with this cluster.
type aliasError struct{ message string }

func (e *aliasError) Error() string { return e.message }

// foundImage is an image and the kinds of types that it is good for.
type foundImage struct {
	image    ec2types.Image
	variants []variant // none means all
}

// findImages returns what the class's terms match.
func (p *Provider) findImages(ctx context.Context, class *aws.EC2NodeClass) ([]foundImage, error) {
	variants := map[string][]variant{}
	var ids []string
	var queries []query
	if alias, version, ok := class.Alias(); ok {
		minor, err := p.kubernetesMinor(ctx)
		if err != nil {
			return nil, err
		}
		parameters, err := aliasParameters(alias, version, minor)
		if err != nil {
			return nil, err
		}
		found, err := p.readParameters(ctx, parameters)
		if err != nil {
			return nil, err
		}
		for i, id := range found {
			if id != "" {
				ids = append(ids, id)
				variants[id] = append(variants[id], parameters[i].variants...)
			}
		}
	}
	for _, t := range class.Spec.AMISelectorTerms {
		switch {
		case t.Alias != "":
		case t.ID != "":
			ids = append(ids, t.ID)
		case t.SSMParameter != "":
			id, err := p.parameter(ctx, t.SSMParameter)
			if err != nil {
				return nil, err
			}
			if id != "" {
				ids = append(ids, id)
			}
		default:
			queries = append(queries, imageQuery(t))
		}
	}
	queries = withValues(queries, "image-id", ids)
	images, err := each(ctx, p.images, queries, func(ctx context.Context, q query) ([]ec2types.Image, error) {
		var out []ec2types.Image
		pages := ec2.NewDescribeImagesPaginator(p.ec2, &ec2.DescribeImagesInput{
			Filters: append(slices.Clone(q.Filters), filter("state", "available")), Owners: q.Owners,
			IncludeDeprecated: new(true), MaxResults: new(int32(1000)),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, failed("find images", err)
			}
			out = append(out, page.Images...)
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	var out []foundImage
	for _, image := range distinct(images, func(i ec2types.Image) string { return deref(i.ImageId) }) {
		out = append(out, foundImage{image, variants[deref(image.ImageId)]})
	}
	return out, nil
}

// imageQuery finds images by name, owner and tags. A name alone could be anybody's,
// so that only our own and Amazon's count unless an owner is given.
func imageQuery(t aws.AMISelectorTerm) query {
	q := query{Filters: tagFilters(t.Tags)}
	if t.Name != "" {
		q.Filters = append(q.Filters, filter("name", t.Name))
	}
	switch {
	case t.Owner != "":
		q.Owners = []string{t.Owner}
	case t.Name != "":
		q.Owners = []string{"self", "amazon"}
	}
	return q
}

// readParameters reads public parameters at once; one that doesn't exist is "".
func (p *Provider) readParameters(ctx context.Context, parameters []imageParameter) ([]string, error) {
	out := make([]string, len(parameters))
	errs := make([]error, len(parameters))
	var wg sync.WaitGroup
	for i, parameter := range parameters {
		wg.Go(func() { out[i], errs[i] = p.parameter(ctx, parameter.name) })
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// parameter reads one SSM parameter; one that doesn't exist is "". Amazon's move about
// once a week, others whenever their owner likes, and a missing one may be on its way.
func (p *Provider) parameter(ctx context.Context, name string) (string, error) {
	if value, known := p.parameters.peek(name, parameterTTL); known {
		age := parameterTTL
		if !strings.HasPrefix(name, "/aws/service/") {
			age = p.images.ttl
		}
		if value == "" {
			age = min(age, selectionTTL)
		}
		if _, fresh := p.parameters.peek(name, age); !fresh {
			p.parameters.forget(name)
		}
	}
	return p.parameters.get(ctx, name, func(ctx context.Context) (string, error) {
		out, err := p.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: &name})
		if code(err) == codeNoParameter {
			return "", nil
		}
		if err != nil {
			return "", failed("read SSM parameter "+name, err)
		}
		if out.Parameter == nil {
			return "", nil
		}
		return strings.TrimSpace(deref(out.Parameter.Value)), nil
	})
}

// missingParameters names those of the class's own SSM parameters that don't exist, as
// the end of a sentence.
func (p *Provider) missingParameters(class *aws.EC2NodeClass) string {
	out := ""
	for _, t := range class.Spec.AMISelectorTerms {
		if value, known := p.parameters.peek(t.SSMParameter, parameterTTL); t.SSMParameter != "" && known && value == "" {
			out += "; there is no SSM parameter " + t.SSMParameter
		}
	}
	return out
}

// imageStatus orders images by preference and says which types each is for: the
// newest first, the deprecated after all others, and of those that are for the same
// types only the first.
func imageStatus(found []foundImage, now time.Time) []aws.AMI {
	type candidate struct {
		ami     aws.AMI
		created string
		id      string
		needs   string
	}
	var candidates []candidate
	for _, f := range found {
		arch := kubeArch(string(f.image.Architecture))
		if arch == "" {
			continue
		}
		variants := f.variants
		if len(variants) == 0 {
			variants = []variant{""}
		}
		for _, v := range variants {
			needs := []corev1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{arch}}}
			if v != "" {
				needs = append(needs, v.requirements()...)
			}
			slices.SortFunc(needs, func(a, b corev1.NodeSelectorRequirement) int { return strings.Compare(a.Key, b.Key) })
			candidates = append(candidates, candidate{
				ami: aws.AMI{
					ID: deref(f.image.ImageId), Name: deref(f.image.Name),
					Deprecated: deprecated(f.image, now), Requirements: needs,
				},
				created: deref(f.image.CreationDate), id: deref(f.image.ImageId), needs: fmt.Sprint(needs),
			})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(
			compareBool(a.ami.Deprecated, b.ami.Deprecated),
			strings.Compare(b.created, a.created), // RFC 3339 in UTC sorts as text
			strings.Compare(a.id, b.id),
			strings.Compare(a.needs, b.needs),
		)
	})
	var out []aws.AMI
	seen := map[string]bool{}
	for _, c := range candidates {
		if !seen[c.needs] {
			seen[c.needs] = true
			out = append(out, c.ami)
		}
	}
	return out
}

func deprecated(image ec2types.Image, now time.Time) bool {
	at, err := time.Parse(time.RFC3339, deref(image.DeprecationTime))
	return err == nil && !now.Before(at)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
