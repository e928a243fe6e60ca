package render

import (
	"fmt"
	"slices"
)

// kubeletFields lists the fields of the kubelet's configuration, those of Kubernetes 1.37
// (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
func kubeletFields() []string {
	return []string{
		"address", "allowedUnsafeSysctls", "authentication", "authorization", "cgroupDriver", "cgroupRoot",
		"cgroupsPerQOS", "clusterDNS", "clusterDomain", "configMapAndSecretChangeDetectionStrategy",
		"containerLogMaxFiles", "containerLogMaxSize", "containerLogMaxWorkers", "containerLogMonitorInterval",
		"containerRuntimeEndpoint", "contentType", "cpuCFSQuota", "cpuCFSQuotaPeriod", "cpuManagerPolicy",
		"cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "crashLoopBackOff", "defaultPodSysctls",
		"enableContentionProfiling", "enableControllerAttachDetach", "enableDebugFlagsHandler",
		"enableDebuggingHandlers", "enableProfilingHandler", "enableServer", "enableSystemLogHandler",
		"enableSystemLogQuery", "enforceNodeAllocatable", "eventBurst", "eventRecordQPS", "evictionHard",
		"evictionMaxPodGracePeriod", "evictionMinimumReclaim", "evictionPressureTransitionPeriod", "evictionSoft",
		"evictionSoftGracePeriod", "failCgroupV1", "failSwapOn", "featureGates", "fileCheckFrequency", "hairpinMode",
		"healthzBindAddress", "healthzPort", "httpCheckFrequency", "imageGCHighThresholdPercent",
		"imageGCLowThresholdPercent", "imageMaximumGCAge", "imageMinimumGCAge",
		"imagePullCredentialsVerificationPolicy", "imageServiceEndpoint", "iptablesDropBit", "iptablesMasqueradeBit",
		"kernelMemcgNotification", "kubeAPIBurst", "kubeAPIQPS", "kubeReserved", "kubeReservedCgroup",
		"kubeletCgroups", "localStorageCapacityIsolation", "logging", "makeIPTablesUtilChains", "maxOpenFiles",
		"maxParallelImagePulls", "maxPods", "memoryManagerPolicy", "memoryReservationPolicy", "memorySwap",
		"memoryThrottlingFactor", "mergeDefaultEvictionSettings", "nodeLeaseDurationSeconds", "nodeStatusMaxImages",
		"nodeStatusReportFrequency", "nodeStatusUpdateFrequency", "oomScoreAdj", "podCIDR", "podLogsDir",
		"podPidsLimit", "podsPerCore", "port", "preloadedImagesVerificationAllowlist", "protectKernelDefaults",
		"providerID", "qosReserved", "readOnlyPort", "registerNode", "registerWithTaints", "registryBurst",
		"registryPullQPS", "reservedMemory", "reservedSystemCPUs", "resolvConf", "rotateCertificates", "runOnce",
		"runtimeRequestTimeout", "seccompDefault", "serializeImagePulls", "serverTLSBootstrap",
		"showHiddenMetricsForVersion", "shutdownGracePeriod", "shutdownGracePeriodByPodPriority",
		"shutdownGracePeriodCriticalPods", "singleProcessOOMKill", "staticPodPath", "staticPodURL",
		"staticPodURLHeader", "streamingConnectionIdleTimeout", "syncFrequency", "systemCgroups", "systemReserved",
		"systemReservedCgroup", "tlsCertFile", "tlsCipherSuites", "tlsCurvePreferences", "tlsMinVersion",
		"tlsPrivateKeyFile", "topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope",
		"tracing", "userNamespaces", "volumePluginDir", "volumeStatsAggPeriod",
	}
}

// UnknownKubeletField says what is odd about the name of a field of the kubelet's
// configuration, or nothing. The CRD takes any, and releases of Kubernetes add some.
func UnknownKubeletField(name string) (message, help string) {
	known := kubeletFields()
	if slices.Contains(known, name) {
		return "", ""
	}
	help = "remove it unless the nodes' Kubernetes is newer than 1.37"
	if s := nearest(name, known); s != "" {
		help = fmt.Sprintf("did you mean %s?", s)
	}
	return fmt.Sprintf("the kubelet's configuration has no field %s", name), help
}
