// Package controlplane runs a whole Kubernetes control plane in this process:
// etcd, kube-apiserver, kube-scheduler and kube-controller-manager, all of them
// the released code, unmodified.
//
// It listens on 127.0.0.1 alone and keeps everything in one folder that the
// caller owns. Nothing survives it: etcd never calls fsync. The components hold
// process-wide state (feature gates, metrics, flags), so a process can start one
// control plane, once.
package controlplane
