package main

import (
	"math"
	"strings"
)

// device is a kind of accelerator, named as DescribeInstanceTypes names it.
type device struct {
	count       int
	maker, name string
	mib         int
}

// gpuNames maps the model in instances.json to EC2's maker and name.
func gpuNames(model string) (maker, name string, isGPU bool) {
	switch model {
	case "NVIDIA L40S":
		return "NVIDIA", "L40S", true
	case "NVIDIA A10G":
		return "NVIDIA", "A10G", true
	case "NVIDIA Tesla K80":
		return "NVIDIA", "K80", true
	case "NVIDIA L4":
		return "NVIDIA", "L4", true
	case "NVIDIA A100":
		return "NVIDIA", "A100", true
	case "NVIDIA T4 Tensor Core":
		return "NVIDIA", "T4", true
	case "NVIDIA T4G Tensor Core":
		return "NVIDIA", "T4g", true
	case "NVIDIA Tesla V100":
		return "NVIDIA", "V100", true
	case "NVIDIA Tesla M60":
		return "NVIDIA", "M60", true
	case "NVIDIA H100":
		return "NVIDIA", "H100", true
	case "NVIDIA H200":
		return "NVIDIA", "H200", true
	case "NVIDIA GRID K520":
		return "NVIDIA", "K520", true
	case "AMD Radeon Pro V520":
		return "AMD", "Radeon Pro V520", true
	case "AWS Inferentia":
		return "AWS", "Inferentia", false
	case "AWS Inferentia2":
		return "AWS", "Inferentia2", false
	}
	return "", "", false
}

// devices splits the "GPU" columns, which count Inferentia and Trainium chips
// too, and corrects the names that they give to Trainium.
func devices(x instance) (gpu, accelerator device) {
	family, _, _ := strings.Cut(x.Type, ".")
	switch family {
	case "trn1", "trn1n":
		// trn1 types are listed as Inferentia; AWS documents 32 GiB a chip.
		return device{}, device{count: x.GPU, maker: "AWS", name: "Trainium", mib: 32 * 1024}
	case "trn2":
		// AWS documents 16 chips of 96 GiB; the source counts 1.
		return device{}, device{count: 16, maker: "AWS", name: "Trainium2", mib: 96 * 1024}
	}
	if x.GPU == 0 {
		return device{}, device{}
	}
	maker, name, isGPU := gpuNames(x.GPUModel)
	d := device{count: x.GPU, maker: maker, name: name, mib: int(math.Round(x.GPUMemoryGiB * 1024 / float64(x.GPU)))}
	switch {
	case name == "":
		return device{}, device{}
	case isGPU:
		return d, device{}
	case name == "Inferentia":
		d.mib = 8 * 1024 // AWS documents 8 GiB a chip; the source has none.
	}
	return device{}, d
}
