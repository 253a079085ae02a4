//! The fields of a `KubeletConfiguration` that have no meaning here, to tell them from mistakes.

/// Fields of `kubelet.config.k8s.io/v1beta1` (Kubernetes 1.36) that are about pods, containers, images, volumes or the
/// kubelet's own server. Those that apply to a Node stand in [`super::settings::SETTINGS`].
const NOT_APPLICABLE: &str = "\
    address allowedUnsafeSysctls authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS \
    clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles containerLogMaxSize \
    containerLogMaxWorkers containerLogMonitorInterval contentType cpuCFSQuota \
    cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod crashLoopBackOff \
    enableContentionProfiling enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler enableServer \
    enableSystemLogHandler enableSystemLogQuery enforceNodeAllocatable evictionMaxPodGracePeriod failCgroupV1 \
    failSwapOn featureGates fileCheckFrequency hairpinMode healthzBindAddress healthzPort httpCheckFrequency \
    imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge \
    imagePullCredentialsVerificationPolicy imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit \
    kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeletCgroups kubeReservedCgroup logging.flushFrequency \
    logging.format logging.options logging.vmodule makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls \
    memoryManagerPolicy memoryReservationPolicy memorySwap memoryThrottlingFactor oomScoreAdj \
    podCIDR podLogsDir podPidsLimit preloadedImagesVerificationAllowlist protectKernelDefaults qosReserved \
    readOnlyPort registryBurst registryPullQPS reservedMemory resolvConf runOnce \
    runtimeRequestTimeout seccompDefault serializeImagePulls serverTLSBootstrap showHiddenMetricsForVersion \
    shutdownGracePeriod shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods singleProcessOOMKill \
    staticPodPath staticPodURL staticPodURLHeader streamingConnectionIdleTimeout syncFrequency systemCgroups \
    systemReservedCgroup tlsCertFile tlsCipherSuites tlsCurvePreferences tlsMinVersion tlsPrivateKeyFile \
    topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope tracing userNamespaces volumePluginDir \
    volumeStatsAggPeriod";

/// Whether the kubelet knows this field and this agent has no use for it.
pub(super) fn is_not_applicable(name: &str) -> bool {
    NOT_APPLICABLE.split(' ').any(|field| field == name)
}
