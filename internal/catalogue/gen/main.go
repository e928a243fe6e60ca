// Command gen writes the embedded instance catalogue.
//
//	cd internal/catalogue/gen && go run . ../catalogue.tsv.gz
//
// It reads data files out of the modules that go.mod pins, and nothing else, so
// the same go.mod gives the same bytes.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/amazon-vpc-resource-controller-k8s/pkg/aws/vpc"
)

const (
	infoModule      = "github.com/LeanerCloud/ec2-instances-info"
	limitsModule    = "github.com/aws/amazon-vpc-resource-controller-k8s"
	bandwidthModule = "github.com/aws/karpenter-provider-aws"
)

// instance is the part of an instances.json record that the catalogue keeps.
type instance struct {
	Type         string                                `json:"instance_type"`
	VCPU         int                                   `json:"vCPU"`
	MemoryGiB    float64                               `json:"memory"`
	Arch         []string                              `json:"arch"`
	Virtual      []string                              `json:"linux_virtualization_types"`
	Generation   string                                `json:"generation"`
	Clock        string                                `json:"clock_speed_ghz"`
	Processor    string                                `json:"physical_processor"`
	BaseCPU      *float64                              `json:"base_performance"`
	Placement    bool                                  `json:"placement_group_support"`
	GPU          int                                   `json:"GPU"`
	GPUModel     string                                `json:"GPU_model"`
	GPUMemoryGiB float64                               `json:"GPU_memory"`
	Network      string                                `json:"network_performance"`
	EBSMbps      float64                               `json:"ebs_baseline_bandwidth"`
	EBSMaxMbps   float64                               `json:"ebs_max_bandwidth"`
	EBSIOPS      float64                               `json:"ebs_baseline_iops"`
	EBSMaxIOPS   float64                               `json:"ebs_iops"`
	Zones        map[string][]string                   `json:"availability_zones"`
	Pricing      map[string]map[string]json.RawMessage `json:"pricing"`
	Storage      *struct {
		Devices int     `json:"devices"`
		Size    float64 `json:"size"`
		NVMe    bool    `json:"nvme_ssd"`
	} `json:"storage"`
}

type price struct {
	OnDemand string `json:"ondemand"`
	Spot     string `json:"spot_avg"`
	SpotMin  string `json:"spot_min"`
	SpotMax  string `json:"spot_max"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: gen FILE.tsv.gz")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(path string) error {
	info, err := findModule(infoModule)
	if err != nil {
		return err
	}
	limits, err := findModule(limitsModule)
	if err != nil {
		return err
	}
	bandwidths, err := findModule(bandwidthModule)
	if err != nil {
		return err
	}
	instances, err := readInstances(filepath.Join(info.Dir, "data", "instances.json"))
	if err != nil {
		return err
	}
	mbps, err := readBandwidth(filepath.Join(bandwidths.Dir, "pkg", "providers", "instancetype", "zz_generated.bandwidth.go"))
	if err != nil {
		return err
	}
	w := &writer{}
	w.line("date", info.day())
	w.line("source", fmt.Sprintf("%s %s data/instances.json: sizes, prices and zones (ec2instances.info, MIT)", info.Path, info.Version))
	w.line("source", fmt.Sprintf("%s %s pkg/aws/vpc/limits.go: network interface limits (Apache-2.0)", limits.Path, limits.Version))
	w.line("source", fmt.Sprintf("%s %s zz_generated.bandwidth.go: figures of sustained network bandwidth (Apache-2.0)", bandwidths.Path, bandwidths.Version))
	regions := w.regions(instances)
	for _, x := range instances {
		limit := vpc.Limits[x.Type]
		if limit == nil || !x.usable() {
			continue
		}
		w.instance(x, limit, mbps[x.Type])
		w.offers(x, regions)
	}
	return w.save(path)
}

// usable leaves out Macs, types without hardware virtualisation and 32-bit
// machines: no Linux node runs on them.
func (x *instance) usable() bool {
	if x.arch() == "" || x.VCPU == 0 || x.MemoryGiB == 0 {
		return false
	}
	return len(x.Virtual) == 0 || slices.Contains(x.Virtual, "HVM")
}

func (x *instance) arch() string {
	for _, a := range []string{"x86_64", "arm64"} {
		if slices.Contains(x.Arch, a) {
			return a
		}
	}
	return ""
}

func (x *instance) manufacturer() string {
	for _, m := range []string{"Intel", "AMD", "AWS"} {
		if strings.Contains(x.Processor, m) {
			return m
		}
	}
	return "Intel"
}

func (x *instance) flags(limit *vpc.VPCLimits) string {
	var f string
	if limit.IsBareMetal {
		f += "m"
	}
	if x.Generation == "current" {
		f += "c"
	}
	if x.BaseCPU != nil {
		f += "b"
	}
	if x.Placement {
		f += "p"
	}
	return f
}

// clock turns "Up to 3.7 GHz" into 3700.
func (x *instance) clock() int {
	s := strings.TrimSuffix(strings.TrimPrefix(x.Clock, "Up to "), " GHz")
	ghz, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return int(math.Round(ghz * 1000))
}

// region keeps the zones that sell something, in order.
type region struct {
	name  string
	zones []string
}

// writer builds the text.
type writer struct{ buf bytes.Buffer }

func (w *writer) line(fields ...any) {
	for i, f := range fields {
		if i > 0 {
			w.buf.WriteByte('\t')
		}
		if f != 0 && f != int64(0) {
			fmt.Fprint(&w.buf, f)
		}
	}
	w.buf.WriteByte('\n')
}

// regions writes every commercial region that lists zones and on-demand prices.
func (w *writer) regions(instances []instance) []region {
	zones := map[string]map[string]bool{}
	for _, x := range instances {
		for name, ids := range x.Zones {
			if _, priced := x.Pricing[name]["linux"]; !priced {
				continue
			}
			if zones[name] == nil {
				zones[name] = map[string]bool{}
			}
			for _, id := range ids {
				zones[name][id] = true
			}
		}
	}
	var regions []region
	for name, set := range zones {
		r := region{name: name}
		for id := range set {
			r.zones = append(r.zones, id)
		}
		slices.Sort(r.zones)
		regions = append(regions, r)
	}
	slices.SortFunc(regions, func(a, b region) int { return strings.Compare(a.name, b.name) })
	for _, r := range regions {
		w.line("region", r.name, strings.Join(r.zones, ","))
	}
	return regions
}

func (w *writer) instance(x instance, limit *vpc.VPCLimits, mbps int64) {
	gpu, accelerator := devices(x)
	var disks, gb int
	if x.Storage != nil && x.Storage.NVMe {
		disks, gb = x.Storage.Devices, int(math.Round(x.Storage.Size))
	}
	branches := 0
	if limit.IsTrunkingCompatible {
		branches = limit.BranchInterface
	}
	hypervisor := limit.Hypervisor
	if limit.IsBareMetal {
		hypervisor = ""
	}
	cards := slices.Clone(limit.NetworkCards)
	slices.SortFunc(cards, func(a, b vpc.NetworkCard) int { return cmp.Compare(a.NetworkCardIndex, b.NetworkCardIndex) })
	var text []string
	for _, c := range cards {
		performance := c.NetworkPerformance
		if performance == x.Network {
			performance = ""
		}
		text = append(text, strings.TrimSuffix(fmt.Sprintf("%d:%s", c.MaximumNetworkInterfaces, performance), ":"))
	}
	if len(text) == 0 {
		text = []string{strconv.Itoa(limit.Interface)}
	}
	w.line("type", x.Type, x.VCPU, int(math.Round(x.MemoryGiB*1024)), x.arch(), hypervisor, x.clock(), x.manufacturer(), x.flags(limit),
		gpu.count, gpu.maker, gpu.name, gpu.mib, accelerator.count, accelerator.maker, accelerator.name, accelerator.mib,
		disks, gb, int(x.EBSMbps), int(x.EBSMaxMbps), int(x.EBSIOPS), int(x.EBSMaxIOPS),
		x.Network, int(mbps), limit.Interface, limit.IPv4PerInterface, branches, limit.DefaultNetworkCardIndex, strings.Join(text, ";"))
}

func (w *writer) offers(x instance, regions []region) {
	for i, r := range regions {
		var p price
		if raw := x.Pricing[r.name]["linux"]; raw == nil || json.Unmarshal(raw, &p) != nil {
			continue
		}
		var bits uint32
		for z, id := range r.zones {
			if slices.Contains(x.Zones[r.name], id) {
				bits |= 1 << z
			}
		}
		od := microUSD(p.OnDemand)
		if od == 0 {
			continue
		}
		w.line("offer", strconv.Itoa(i), od, microUSD(p.Spot), microUSD(p.SpotMin), microUSD(p.SpotMax), int64(bits))
	}
}

func microUSD(s string) int64 {
	usd, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return int64(math.Round(usd * 1e6))
}

// save writes with no time in the gzip header, so that equal text is equal bytes.
func (w *writer) save(path string) error {
	var out bytes.Buffer
	zw, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := zw.Write(w.buf.Bytes()); err != nil {
		return err
	}
	if err := zw.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// goModule is what go list says about a pinned module.
type goModule struct{ Path, Version, Dir string }

// day takes the date out of a pseudo-version.
func (m goModule) day() string {
	parts := strings.Split(m.Version, "-")
	if len(parts) < 2 || len(parts[1]) < 8 {
		return ""
	}
	stamp := parts[1]
	return stamp[:4] + "-" + stamp[4:6] + "-" + stamp[6:8]
}

func findModule(path string) (goModule, error) {
	out, err := exec.Command("go", "list", "-m", "-json", path).Output()
	if err != nil {
		return goModule{}, fmt.Errorf("find module %s: %w", path, err)
	}
	var m goModule
	if err := json.Unmarshal(out, &m); err != nil {
		return goModule{}, fmt.Errorf("find module %s: %w", path, err)
	}
	if m.Dir != "" {
		return m, nil
	}
	// Not linked, hence not yet on disk.
	out, err = exec.Command("go", "mod", "download", "-json", path).Output()
	if err != nil {
		return goModule{}, fmt.Errorf("download %s: %w", path, err)
	}
	return m, json.Unmarshal(out, &m)
}

func readInstances(path string) ([]instance, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var instances []instance
	if err := json.Unmarshal(data, &instances); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	slices.SortFunc(instances, func(a, b instance) int { return strings.Compare(a.Type, b.Type) })
	return instances, nil
}

// readBandwidth takes the "type": megabits pairs out of a Go map literal.
func readBandwidth(path string) (map[string]int64, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return nil, err
	}
	mbps := map[string]int64{}
	ast.Inspect(file, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isKey := pair.Key.(*ast.BasicLit)
		value, isValue := pair.Value.(*ast.BasicLit)
		if !isKey || !isValue {
			return true
		}
		name, err := strconv.Unquote(key.Value)
		if err != nil {
			return true
		}
		if v, err := strconv.ParseInt(value.Value, 10, 64); err == nil {
			mbps[name] = v
		}
		return true
	})
	if len(mbps) == 0 {
		return nil, fmt.Errorf("no figures in %s", path)
	}
	return mbps, nil
}
