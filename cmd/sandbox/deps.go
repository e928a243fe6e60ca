//go:build depspin

package main

import (
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	_ "sigs.k8s.io/controller-runtime/pkg/client"
	_ "github.com/spf13/cobra"
	_ "github.com/go-git/go-git/v5"
	_ "sigs.k8s.io/yaml"
)

func main() {}
