// Package ec2 is the cloud of Amazon EC2: it answers for cloud.Provider with the
// calls of the AWS SDK.
//
// It resolves what an EC2NodeClass selects (subnets, security groups, images,
// instance profile), lists the instance types with what a node of each will offer
// and cost, launches instances through launch templates and CreateFleet of type
// instant, and finds, tags and ends the cluster's instances.
//
// Three rules hold throughout:
//
//   - A launch is repeatable. The request's token becomes EC2's client token and a
//     tag, so that a call that is repeated after a crash or a lost answer finds the
//     first instance instead of starting a second one (launch.go says how).
//   - EC2's calls are few. Answers are kept for as long as they can be trusted,
//     callers that ask for the same share one call, and terminations that come
//     close together go out as one.
//   - What decides is pure. Capacity, labels, prices, overrides, user data and
//     drift are functions of their arguments; only the methods of Provider call
//     AWS, and only they read the clock.
//
// The package knows nothing of pods or of the API server.
package ec2
