//! Flags and settings: one item per flag, typed settings out of them.
//!
//! Two stages: the command line is read into [`LowArgs`] (typed, as given), and these are
//! validated into [`Settings`]. Controllers see only their own part. The one file that is read here
//! is `--leader-migration-config`.

mod configz;
mod controllers;
mod env;
mod feature_gates;
mod flag;
mod flags;
mod go_duration;
mod low_args;
mod migration;
mod own;
mod parse;
mod reference;
pub(crate) mod service_ranges;
mod settings;
mod validate;

pub use controllers::ControllerName;
pub use env::Env;
pub use feature_gates::{FeatureGate, FeatureGates};
pub use flag::{Flag, Kind, Section, SetFn};
pub use flags::flags;
pub use go_duration::{DurationError, GoDuration};
pub use low_args::{LowArgs, VersionForm};
pub use own::OwnFlags;
pub use parse::ConfigErrors;
pub use reference::{render_help, render_reference};
pub use settings::{
    ApiRate, ApiSettings, AuthenticationSettings, AuthorizationSettings, CertificateSettings,
    CloudSettings, LeaderElectionSettings, LeaderMigrationSettings, LockOf, LogFormat,
    LoggingSettings, NodeIpamSettings, NodeLifecycleSettings, NodeSettings, RequestHeaderSettings,
    RouteSettings, ServiceSettings, ServingSettings, Settings, SniSettings,
};
