//! Where kubesim differs from the real server on purpose.

/// A difference that is allowed.
pub(crate) struct Difference {
    /// The case, `module-function`; empty for every case.
    pub(crate) case: &'static str,
    /// Part of the title of the step; empty for every step.
    pub(crate) step: &'static str,
    /// JSON pointer of the differing value in the step; `*` stands for one segment.
    pub(crate) pointer: &'static str,
    /// Why it is left so.
    pub(crate) why: &'static str,
}

/// All of them. One that a case no longer shows fails that case: the list cannot grow stale.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "objects-finalizers",
        step: "configmaps/d",
        pointer: "",
        why: "there is no garbage collector behind either server: kubesim deletes with a propagation policy as after the collector's work",
    },
    Difference {
        case: "objects-finalizers",
        step: "configmaps/e",
        pointer: "",
        why: "as above, for orphaning",
    },
    Difference {
        case: "services-allocation",
        step: "services/given-ip",
        pointer: "/body/metadata/resourceVersion",
        why: "the owners of fields are not tracked: a patch that only gives up what it owned is no change",
    },
    Difference {
        case: "services-allocation",
        step: "PUT",
        pointer: "/body/metadata/resourceVersion",
        why: "as above, for a PUT",
    },
];
