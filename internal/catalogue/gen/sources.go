//go:build sources

package main

// The generator reads data files out of these modules; importing a package of
// each keeps them in go.mod without linking them.
import (
	_ "github.com/LeanerCloud/ec2-instances-info"
	_ "github.com/aws/karpenter-provider-aws/pkg/apis"
)
