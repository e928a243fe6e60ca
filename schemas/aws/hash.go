package aws

import (
	"strings"

	"github.com/coppice-dev/coppice/schemas/internal/hash"
)

// EC2NodeClassHashVersion names the algorithm of EC2NodeClass.Hash. It differs
// from all of Karpenter's, so that a hash of one is never compared with a hash of
// the other.
const EC2NodeClassHashVersion = "coppice-v1"

// AMI families, values of EC2NodeClassSpec.AMIFamily.
const (
	AMIFamilyAL2          = "AL2"
	AMIFamilyAL2023       = "AL2023"
	AMIFamilyBottlerocket = "Bottlerocket"
	AMIFamilyCustom       = "Custom"
	AMIFamilyWindows2019  = "Windows2019"
	AMIFamilyWindows2022  = "Windows2022"
	AMIFamilyWindows2025  = "Windows2025"
)

// Alias returns the family and the version of the alias that the class selects
// its image by. The family is spelt as in the alias, in lower case.
func (c *EC2NodeClass) Alias() (family, version string, ok bool) {
	for _, t := range c.Spec.AMISelectorTerms {
		if family, version, ok = strings.Cut(t.Alias, "@"); ok {
			return family, version, true
		}
	}
	return "", "", false
}

// AMIFamily returns the family that nodes are configured for: the one that is
// set, or the alias's. A class that the API server accepted has one.
func (c *EC2NodeClass) AMIFamily() string {
	if c.Spec.AMIFamily != nil {
		return *c.Spec.AMIFamily
	}
	family, _, _ := c.Alias()
	switch family {
	case "al2":
		return AMIFamilyAL2
	case "al2023":
		return AMIFamilyAL2023
	case "bottlerocket":
		return AMIFamilyBottlerocket
	case "windows2019":
		return AMIFamilyWindows2019
	case "windows2022":
		return AMIFamilyWindows2022
	case "windows2025":
		return AMIFamilyWindows2025
	}
	return AMIFamilyCustom
}

// Hash identifies what the class asks of an instance, apart from what its
// selectors find: an instance whose claim carries another hash has drifted. What
// the selectors find is compared with the instance itself, and the number of IP
// prefixes is left out because it may change without a new instance.
func (c *EC2NodeClass) Hash() string {
	spec := c.Spec
	spec.SubnetSelectorTerms = nil
	spec.SecurityGroupSelectorTerms = nil
	spec.CapacityReservationSelectorTerms = nil
	spec.PlacementGroupSelector = nil
	spec.AMISelectorTerms = nil
	spec.IPPrefixCount = nil
	family := c.AMIFamily()
	spec.AMIFamily = &family
	return hash.Of(spec)
}
