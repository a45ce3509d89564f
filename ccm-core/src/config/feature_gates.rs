//! `--feature-gates`: which take effect here, and which are known to Kubernetes (specification:
//! controllers §10, §15).

use std::collections::BTreeMap;

use super::flag::parse_bool;

/// A gate that changes something in this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureGate {
    /// Routes follow the Nodes' changes instead of a short period.
    WatchBasedRoutes,
    /// `--log-…-split-stream` and `--log-…-info-buffer-size` are accepted.
    LoggingAlphaOptions,
    /// `--requestheader-uid-headers` is accepted.
    RemoteRequestHeaderUid,
}

impl FeatureGate {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::WatchBasedRoutes,
        Self::LoggingAlphaOptions,
        Self::RemoteRequestHeaderUid,
    ];

    /// The name in the flag.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WatchBasedRoutes => "CloudControllerManagerWatchBasedRoutesReconciliation",
            Self::LoggingAlphaOptions => "LoggingAlphaOptions",
            Self::RemoteRequestHeaderUid => "RemoteRequestHeaderUID",
        }
    }

    /// Whether it is on when nothing is said.
    pub const fn default(self) -> bool {
        match self {
            Self::WatchBasedRoutes | Self::LoggingAlphaOptions => false,
            Self::RemoteRequestHeaderUid => true,
        }
    }

    /// The gate that stands for all of its stage.
    const fn stage(self) -> &'static str {
        match self {
            Self::WatchBasedRoutes | Self::LoggingAlphaOptions => ALL_ALPHA,
            Self::RemoteRequestHeaderUid => ALL_BETA,
        }
    }
}

const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";
/// What it asks for is always done: only switching it off has no effect.
const RELEASE_ON_EXIT: &str = "ControllerManagerReleaseLeaderElectionLockOnExit";

/// The gates that the flag names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Whether a gate is on: as named, else as its stage is, else by default (REQ-APP-25).
    pub fn enabled(&self, gate: FeatureGate) -> bool {
        let named = self.0.get(gate.name());
        let stage = || self.0.get(gate.stage());
        named
            .or_else(stage)
            .copied()
            .unwrap_or_else(|| gate.default())
    }

    /// Adds the pairs of one value of the flag; of a gate named twice the last value stands.
    pub(super) fn merge(&mut self, text: &str) -> Result<(), String> {
        let mut problems = Vec::new();
        let mut pairs = Vec::new();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            match pair(item) {
                Ok(pair) => pairs.push(pair),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            self.0.extend(pairs);
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }

    /// One text for each gate that is accepted and changes nothing (REQ-APP-23).
    pub(super) fn warnings(&self) -> Vec<String> {
        let has_effect = |name: &str, on: bool| {
            name == ALL_ALPHA
                || name == ALL_BETA
                || (name == RELEASE_ON_EXIT && on)
                || FeatureGate::ALL.iter().any(|gate| gate.name() == name)
        };
        self.0
            .iter()
            .filter(|(name, on)| !has_effect(name, **on))
            .map(|(name, _)| format!("feature gate {name} has no effect in this program"))
            .collect()
    }
}

/// One `name=bool`, with the Go managers' words for what is wrong.
fn pair(item: &str) -> Result<(String, bool), String> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (item, None),
    };
    let Some(value) = value else {
        return Err(format!("missing bool value for {name}"));
    };
    if KNOWN.binary_search(&name).is_err() {
        return Err(format!("unrecognized feature gate: {name}"));
    }
    match parse_bool(value) {
        Ok(on) => Ok((name.to_owned(), on)),
        Err(reason) => Err(format!("invalid value of {name}={value}, err: {reason}")),
    }
}

/// The gates that some Kubernetes release knows, in byte order.
#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "APIListChunking", "APIPriorityAndFairness", "APIResponseCompression", "APIServerIdentity",
    "APIServerTracing", "APIServerWebhookAuthenticationToken", "APIServingWithRoutine",
    "AdmissionWebhookMatchConditions", "AdvancedAuditing", "AggregatedDiscoveryEndpoint",
    "AggregatedDiscoveryRemoveBetaType", "AllAlpha", "AllBeta", "AllowDNSOnlyNodeCSR",
    "AllowInsecureKubeletCertificateSigningRequests", "AllowOverwriteTerminationGracePeriodSeconds",
    "AllowParsingUserUIDFromCertAuth", "AllowServiceExternalIPs", "AllowServiceLBStatusOnNonLB",
    "AllowUnsafeMalformedObjectDeletion", "AnonymousAuthConfigurableEndpoints",
    "AnyVolumeDataSource", "AtomicFIFO", "AtomicWriteVolumeUserFields",
    "AuthorizeNodeWithSelectors", "AuthorizePodWebsocketUpgradeCreatePermission",
    "AuthorizeWithSelectors", "BtreeWatchCache", "CBORServingAndStorage", "CPUCFSQuotaPeriod",
    "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions", "CPUManagerPolicyOptions",
    "CRDObservedGenerationTracking", "CRDValidationRatcheting", "CRIListStreaming", "CSIMigration",
    "CSIMigrationAWS", "CSIMigrationAWSComplete", "CSIMigrationAzureDisk",
    "CSIMigrationAzureDiskComplete", "CSIMigrationAzureFile", "CSIMigrationAzureFileComplete",
    "CSIMigrationGCE", "CSIMigrationGCEComplete", "CSIMigrationPortworx",
    "CSIServiceAccountTokenSecrets", "CSIVolumeHealth", "ChangeContainerStatusOnKubeletRestart",
    "ClearingNominatedNodeNameAfterBinding", "ClientsAllowCARotation", "ClientsAllowCBOR",
    "ClientsAllowTLSCacheGC", "ClientsPreferCBOR",
    "CloudControllerManagerWatchBasedRoutesReconciliation", "CloudControllerManagerWebhook",
    "CloudDualStackNodeIPs", "CloudNodeAdditionalLabelsReconciliation", "ClusterTrustBundle",
    "ClusterTrustBundleProjection", "ComponentFlagz", "ComponentSLIs", "ComponentStatusz",
    "CompositePodGroup", "ConcurrentWatchObjectDecode", "ConsistentListFromCache",
    "ConsistentListFromCacheSkipTimeoutFallback", "ConstrainedImpersonation", "ContainerCheckpoint",
    "ContainerRestartRules", "ContainerStopSignals", "ContextualLogging",
    "ControllerManagerLeaderMigration", "ControllerManagerReleaseLeaderElectionLockOnExit",
    "CoordinatedLeaderElection", "CronJobsScheduledAnnotation", "CrossNamespaceVolumeDataSource",
    "CustomCPUCFSQuotaPeriod", "CustomResourceFieldSelectors",
    "CustomResourceValidationExpressions", "DRAAdminAccess", "DRAConsumableCapacity",
    "DRADerivedAttributes", "DRADeviceBindingConditions", "DRADeviceCompatibilityGroups",
    "DRADeviceTaintRules", "DRADeviceTaints", "DRAExtendedResource", "DRAFractionalCapacityRange",
    "DRAListTypeAttributes", "DRANodeAllocatableResources", "DRAOptionalNodeOperations",
    "DRAPartitionableDevices", "DRAPartitionableDevicesType", "DRAPrioritizedList",
    "DRAResourceClaimDeviceStatus", "DRAResourceClaimGranularStatusAuthorization",
    "DRAResourcePoolStatus", "DRASchedulerFilterTimeout", "DRAWorkloadResourceClaims",
    "DeclarativeValidation", "DeclarativeValidationBeta", "DeclarativeValidationTakeover",
    "DefaultPodSysctls", "DeploymentReplicaSetTerminatingReplicas", "DetectCacheInconsistency",
    "DisableAllocatorDualWrite", "DisableCPUQuotaWithExclusiveCPUs", "DisableNodeKubeProxyVersion",
    "DryRun", "DynamicResourceAllocation", "EfficientWatchResumption", "EmptyDirVolumeMode",
    "EnvFiles", "EtcdRangeStream", "EventedPLEG", "EvictionRequestAPI",
    "ExcludeAdmissionWebhookVirtualResources", "ExecProbeTimeout", "ExtendWebSocketsToKubelet",
    "ExternalServiceAccountTokenSigner", "GRPCContainerProbeTLS", "GangScheduling",
    "GenericWorkload", "GitRepoVolumeDriver", "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority", "H2CContainerProbe", "HPAConfigurableTolerance",
    "HPAGeneration", "HPAOptimizedSelectorStore", "HPAScaleToZero", "HonorPVReclaimPolicy",
    "HostnameOverride", "HugepageAwareEviction", "IPv6DualStack", "ImageMaximumGCAge",
    "ImageVolume", "ImageVolumeWithDigest", "InOrderInformers", "InOrderInformersBatchProcess",
    "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingAllocatedStatus", "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory", "InPlacePodVerticalScalingInitContainers",
    "InPlacePodVerticalScalingMemoryBackedVolumes", "InPlacePodVerticalScalingSchedulerPreemption",
    "InTreePluginPortworxUnregister", "InformerResourceVersion", "InterPodAffinityHostnameFastPath",
    "JobBackoffLimitPerIndex", "JobManagedBy", "JobPodReplacementPolicy", "JobSuccessPolicy",
    "KMSv1", "KMSv2", "KMSv2KDF", "KubeProxyDrainingTerminatingNodes", "KubeProxyIPVS",
    "KubeProxyNFTablesLocalhostNodePorts", "KubeletAllocatedPodsEndpoint",
    "KubeletCgroupDriverFromCRI", "KubeletCrashLoopBackOffMax", "KubeletEnsureSecretPulledImages",
    "KubeletFineGrainedAuthz", "KubeletInUserNamespace", "KubeletPSI",
    "KubeletPodResourcesDynamicResources", "KubeletPodResourcesGet",
    "KubeletPodResourcesListUseActivePods", "KubeletRegistrationGetOnExistsOnly",
    "KubeletSeparateDiskGC", "KubeletServiceAccountTokenForCredentialProviders", "KubeletTracing",
    "LegacyNodeRoleBehavior", "ListFromCacheSnapshot", "LoadBalancerIPMode",
    "LocalStorageCapacityIsolationFSQuotaMonitoring", "LogarithmicScaleDown", "LoggingAlphaOptions",
    "LoggingBetaOptions", "ManifestBasedAdmissionControlConfig", "MatchLabelKeysInPodAffinity",
    "MatchLabelKeysInPodTopologySpread", "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "MaxUnavailableStatefulSet", "MemoryManager", "MemoryQoS", "MultiCIDRRangeAllocator",
    "MultiCIDRServiceAllocator", "MutableCSINodeAllocatableCount", "MutablePVNodeAffinity",
    "MutablePodResourcesForSuspendedJobs", "MutableSchedulingDirectivesForSuspendedJobs",
    "MutatingAdmissionPolicy", "NFTablesNetlink", "NFTablesProxyMode", "NativeHistograms",
    "NodeControllerLeaseCircuitBreaker", "NodeDeclaredFeatures",
    "NodeInclusionPolicyInPodTopologySpread", "NodeLifecycleConditions", "NodeLogQuery", "NodeSwap",
    "NominatedNodeNameForExpectation", "OpenAPIEnums", "OpenAPIV3", "OpportunisticBatching",
    "OrderedNamespaceDeletion", "PLEGOnDemandRelist", "PersistentVolumeClaimUnusedSinceTime",
    "PodAndContainerStatsFromCRI", "PodCertificateRequest", "PodDeletionCost",
    "PodGroupPreemptionPolicy", "PodIndexLabel", "PodLevelResourceManagers", "PodLevelResources",
    "PodLevelResourcesFixDefaulting", "PodLevelResourcesFixKubeletQOSClass",
    "PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero", "PodLogsQuerySplitStreams",
    "PodObservedGenerationTracking", "PodReadyToStartContainersCondition", "PodSchedulingReadiness",
    "PodTopologyLabelsAdmission", "PodsAPI", "PortForwardWebsockets",
    "PreferSameTrafficDistribution", "PreventStaticPodAPIReferences",
    "ProbeHostPodSecurityStandards", "ProcMountType", "QOSReserved",
    "RecoverVolumeExpansionFailure", "RecursiveReadOnlyMounts",
    "ReduceDefaultCrashLoopBackOffDecay", "RelaxedDNSSearchValidation",
    "RelaxedEnvironmentVariableValidation", "RelaxedServiceNameValidation",
    "ReloadKubeletClientCAFile", "ReloadKubeletServerCertificateFile", "RemainingItemCount",
    "RemoteRequestHeaderUID", "RemoveSelfLink", "ResilientWatchCacheInitialization",
    "ResourceHealthStatus", "ResourceHealthStatusMessage", "RestartAllContainersOnContainerExits",
    "RetryGenerateName", "RotateKubeletServerCertificate", "RuntimeClassInImageCriAPI",
    "RuntimeClassInImageCriApi", "SELinuxChangePolicy", "SELinuxMount",
    "SELinuxMountReadWriteOncePod", "SchedulerAsyncAPICalls", "SchedulerAsyncPreemption",
    "SchedulerPopFromBackoffQ", "SchedulerPreQueueingHints", "SchedulerQueueingHints",
    "SelectorIndex", "SeparateCacheWatchRPC", "SeparateTaintEvictionController", "ServerSideApply",
    "ServerSideFieldValidation", "ServiceAccountNodeAudienceRestriction", "ServiceAccountTokenJTI",
    "ServiceAccountTokenNodeBinding", "ServiceAccountTokenNodeBindingValidation",
    "ServiceAccountTokenPodNodeInfo", "ServiceCIDRStatusFieldWiping", "ServiceLBNodePortControl",
    "ServiceLoadBalancerClass", "ServiceNodeExclusion", "ServiceTrafficDistribution",
    "ShardedListAndWatch", "SidecarContainers", "SizeBasedListCostEstimate",
    "SizeMemoryBackedVolumes", "StableLoadBalancerNodeSet", "StaleControllerConsistencyDaemonSet",
    "StaleControllerConsistencyHPA", "StaleControllerConsistencyJob",
    "StaleControllerConsistencyReplicaSet", "StaleControllerConsistencyStatefulSet",
    "StatefulSetAutoDeletePVC", "StatefulSetRecreateStrategy",
    "StatefulSetSemanticRevisionComparison", "StorageCapacityScoring", "StorageNamespaceIndex",
    "StorageVersionAPI", "StorageVersionHash", "StorageVersionMigrator",
    "StreamingCollectionEncodingToJSON", "StreamingCollectionEncodingToProtobuf",
    "StreamingProxyRedirects", "StrictCostEnforcementForVAP", "StrictCostEnforcementForWebhooks",
    "StrictIPCIDRValidation", "StructuredAuthenticationConfiguration",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics", "StructuredAuthorizationConfiguration",
    "SupplementalGroupsPolicy", "SystemdWatchdog", "TaintTolerationComparisonOperators",
    "TokenRequestServiceAccountUIDValidation", "TopologyAwareHints",
    "TopologyAwareWorkloadScheduling", "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions", "TopologyManagerPolicyOptions",
    "TranslateStreamCloseWebsocketRequests", "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy", "UnlockWhileProcessingFIFO",
    "UserNamespacesHostNetworkSupport", "UserNamespacesPodSecurityStandards",
    "UserNamespacesSupport", "ValidateProxyRedirects", "ValidatingAdmissionPolicy",
    "VolumeAttributesClass", "VolumeBindMountOptions", "VolumeLimitScaling", "WarningHeaders",
    "WatchBookmark", "WatchCacheInitializationPostStartHook",
    "WatchFromStorageWithoutResourceVersion", "WatchList", "WatchListClient",
    "WatchListCompression", "WebhookRoundTripLoadBalancing", "WinDSR", "WinOverlay",
    "WindowsCPUAndMemoryAffinity", "WindowsGracefulNodeShutdown", "WindowsHostNetwork",
    "WorkloadAwarePreemption", "WorkloadWithJob", "ZeroLimitedNominalConcurrencyShares",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gates(values: &[&str]) -> Result<FeatureGates, String> {
        let mut gates = FeatureGates::default();
        for value in values {
            gates.merge(value)?;
        }
        Ok(gates)
    }

    #[test]
    fn the_known_gates_are_in_byte_order_and_hold_ours() {
        assert!(KNOWN.is_sorted_by(|a, b| a < b));
        for gate in FeatureGate::ALL {
            assert!(KNOWN.contains(&gate.name()) && KNOWN.contains(&gate.stage()));
        }
        assert!(KNOWN.contains(&RELEASE_ON_EXIT));
        assert_eq!(KNOWN.len(), 343);
    }

    /// REQ-APP-25
    #[test]
    fn a_stage_does_not_override_a_gate_that_is_named() {
        use FeatureGate::{LoggingAlphaOptions, RemoteRequestHeaderUid, WatchBasedRoutes};
        let watch = WatchBasedRoutes.name();
        for (values, want) in [
            (vec![], (false, false, true)),
            (vec!["AllAlpha=true".to_owned()], (true, true, true)),
            (vec!["AllBeta=false".to_owned()], (false, false, false)),
            (
                vec![format!("{watch}=false,AllAlpha=true")],
                (false, true, true),
            ),
            (
                vec!["AllAlpha=true".to_owned(), format!("{watch}=false")],
                (false, true, true),
            ),
            (
                vec!["AllBeta=false,RemoteRequestHeaderUID=true".to_owned()],
                (false, false, true),
            ),
        ] {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let gates = gates(&values).unwrap();
            let have = (
                gates.enabled(WatchBasedRoutes),
                gates.enabled(LoggingAlphaOptions),
                gates.enabled(RemoteRequestHeaderUid),
            );
            assert_eq!(have, want, "{values:?}");
            assert_eq!(gates.warnings(), [""; 0]);
        }
    }

    /// REQ-APP-25
    #[test]
    fn repeated_flags_merge_and_the_last_value_of_a_gate_stands() {
        let gates = gates(&[
            "WatchList=true, ,LoggingAlphaOptions = true,",
            "WatchList=false",
        ]);
        let gates = gates.unwrap();
        assert!(gates.enabled(FeatureGate::LoggingAlphaOptions));
        assert_eq!(gates.0.get("WatchList"), Some(&false));
    }

    /// REQ-APP-25
    #[test]
    fn malformed_pairs_are_told_in_the_words_of_the_go_managers() {
        for (value, error) in [
            ("Nope=true", "unrecognized feature gate: Nope"),
            ("allalpha=true", "unrecognized feature gate: allalpha"),
            ("=true", "unrecognized feature gate: "),
            ("WatchList", "missing bool value for WatchList"),
            ("Nope", "missing bool value for Nope"),
            (
                "WatchList=yes",
                "invalid value of WatchList=yes, err: \"yes\" is not a boolean: write true or false",
            ),
            (
                "WatchList=, Nope=1",
                "invalid value of WatchList=, err: \"\" is not a boolean: write true or false; \
                 unrecognized feature gate: Nope",
            ),
        ] {
            assert_eq!(gates(&[value]).unwrap_err(), error);
        }
    }

    /// REQ-APP-23
    #[test]
    fn a_known_gate_without_effect_is_one_warning() {
        let gates = gates(&[
            "CloudControllerManagerWebhook=true,StableLoadBalancerNodeSet=false",
            "CloudControllerManagerWebhook=true",
            "ControllerManagerReleaseLeaderElectionLockOnExit=true",
        ]);
        assert_eq!(
            gates.unwrap().warnings(),
            [
                "feature gate CloudControllerManagerWebhook has no effect in this program",
                "feature gate StableLoadBalancerNodeSet has no effect in this program",
            ]
        );
    }

    #[test]
    fn the_lease_is_always_released_so_only_switching_that_off_is_warned_of() {
        let off = gates(&[&format!("{RELEASE_ON_EXIT}=false")]).unwrap();
        assert_eq!(off.warnings().len(), 1);
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic(text in "[A-Za-z=, ]{0,40}|.{0,40}") {
            let mut gates = FeatureGates::default();
            let before = gates.clone();
            // What is refused changes nothing.
            if gates.merge(&text).is_err() {
                prop_assert_eq!(gates, before);
            }
        }
    }
}
