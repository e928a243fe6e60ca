package cluster

import (
	"fmt"

	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/record"
)

// Reason returns why a pool has no place for a pod as an entry of the decision
// record, with what would change it.
func Reason(r pack.Reason) record.Reason {
	out := record.Reason{Code: code(r.Cause), Message: cause(r), Remedy: remedy(r)}
	if r.Pool != "" {
		out.Scope = "NodePool " + r.Pool
	}
	return out
}

func code(c pack.Cause) string {
	switch c {
	case pack.NoPools:
		return "NoPools"
	case pack.Untolerated:
		return "Untolerated"
	case pack.Incompatible:
		return "Incompatible"
	case pack.UndefinedLabel:
		return "UndefinedLabel"
	case pack.NoType:
		return "NoType"
	case pack.TooLarge:
		return "TooLarge"
	case pack.NoOffering:
		return "NoOffering"
	case pack.MinValuesUnmet:
		return "MinValuesUnmet"
	case pack.LimitReached:
		return "LimitReached"
	case pack.ClusterLimitReached:
		return "ClusterLimitReached"
	case pack.SpreadSkew:
		return "SpreadSkew"
	case pack.AffinityUnmet:
		return "AffinityUnmet"
	case pack.AntiAffinityBlocked:
		return "AntiAffinityBlocked"
	case pack.NotBeside:
		return "NotBeside"
	case pack.VolumeElsewhere:
		return "VolumeElsewhere"
	case pack.AttachLimit:
		return "AttachLimit"
	case pack.PortTaken:
		return "PortTaken"
	}
	panic(fmt.Sprintf("cause %d has no code", c))
}

// remedy says what would change the outcome, from the pool's side if it is the
// pool that binds, else from the pod's. Empty where there is no one answer.
func remedy(r pack.Reason) string {
	switch r.Cause {
	case pack.NoPools:
		return "add a NodePool, or see the conditions of those there are"
	case pack.Untolerated:
		return fmt.Sprintf("a toleration for %s on the pod", r.Taint.Key)
	case pack.UndefinedLabel:
		if r.Hint != "" {
			return fmt.Sprintf("%s instead of %s on the pod, or %s among the pool's labels or requirements", r.Hint, r.Key, r.Key)
		}
		return fmt.Sprintf("%s among the pool's labels or requirements", r.Key)
	case pack.Incompatible, pack.NoType:
		if r.Key != "" {
			return fmt.Sprintf("a wider requirement for %s, of the pod or the pool", r.Key)
		}
	case pack.TooLarge:
		return fmt.Sprintf("%s of %s less for the pod, or larger types in the pool", Amount(r.Resource, r.Want-r.Have), r.Resource)
	case pack.NoOffering:
		return "more types, zones or capacity types in the pool; else it is tried again as offerings come back"
	case pack.MinValuesUnmet:
		return fmt.Sprintf("minValues of at most %d for %s, or more types in the pool", r.Have, r.Key)
	case pack.LimitReached:
		return fmt.Sprintf("a limit for %s that is higher by %s", r.Resource, Amount(r.Resource, r.Want-r.Have))
	case pack.ClusterLimitReached:
		return fmt.Sprintf("a limit over all pools for %s that is higher by %s", r.Resource, Amount(r.Resource, r.Want-r.Have))
	case pack.SpreadSkew:
		return fmt.Sprintf("nodes in more values of %s, or a greater maxSkew", r.Key)
	case pack.NotBeside:
		return "a volume that several nodes can use (ReadWriteMany), or fewer pods that share this one"
	case pack.AttachLimit:
		return "fewer volumes for the pod, or types that attach more"
	case pack.AffinityUnmet, pack.AntiAffinityBlocked, pack.VolumeElsewhere, pack.PortTaken:
	}
	return ""
}
