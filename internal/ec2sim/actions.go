package ec2sim

// ec2Actions lists what EC2 can do here. The instance types come from the
// catalogue alone, which needs no lock.
func ec2Actions() map[string]action {
	locked := map[string]func(*Server, *call) error{
		"CancelCapacityReservation":      (*Server).cancelCapacityReservation,
		"CreateCapacityReservation":      (*Server).createCapacityReservation,
		"CreatePlacementGroup":           (*Server).createPlacementGroup,
		"DeletePlacementGroup":           (*Server).deletePlacementGroup,
		"DescribeCapacityReservations":   (*Server).describeCapacityReservations,
		"DescribePlacementGroups":        (*Server).describePlacementGroups,
		"CreateFleet":                    (*Server).createFleet,
		"CreateLaunchTemplate":           (*Server).createLaunchTemplate,
		"CreateLaunchTemplateVersion":    (*Server).createLaunchTemplateVersion,
		"CreateTags":                     (*Server).createTags,
		"DeleteLaunchTemplate":           (*Server).deleteLaunchTemplate,
		"DeleteTags":                     (*Server).deleteTags,
		"DeregisterImage":                (*Server).deregisterImage,
		"RegisterImage":                  (*Server).registerImage,
		"DescribeAvailabilityZones":      (*Server).describeAvailabilityZones,
		"DescribeImages":                 (*Server).describeImages,
		"DescribeInstanceStatus":         (*Server).describeInstanceStatus,
		"DescribeInstanceTypeOfferings":  (*Server).describeInstanceTypeOfferings,
		"DescribeInstances":              (*Server).describeInstances,
		"DescribeLaunchTemplateVersions": (*Server).describeLaunchTemplateVersions,
		"DescribeLaunchTemplates":        (*Server).describeLaunchTemplates,
		"DescribeSecurityGroups":         (*Server).describeSecurityGroups,
		"DescribeSpotPriceHistory":       (*Server).describeSpotPriceHistory,
		"DescribeSubnets":                (*Server).describeSubnets,
		"DescribeTags":                   (*Server).describeTags,
		"RebootInstances":                (*Server).rebootInstances,
		"RunInstances":                   (*Server).runInstances,
		"TerminateInstances":             (*Server).terminateInstances,
	}
	actions := map[string]action{
		"DescribeInstanceTypes": {run: (*Server).describeInstanceTypes, free: true},
	}
	for name, run := range locked {
		actions[name] = action{run: run}
	}
	return actions
}
