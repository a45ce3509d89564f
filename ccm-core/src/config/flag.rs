//! What a flag is: one item holds its name, type, default, help and effect.

use super::{GoDuration, LowArgs};

/// The type of a flag's value, with Go's word for it in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `--x`, `--x=true`, `--x=false`; never `--x false`.
    Bool,
    /// A 32 bit integer.
    Int,
    /// A number.
    Float,
    /// A Go duration.
    Duration,
    /// Any text.
    Text,
    /// Comma separated; repeated flags append.
    List,
    /// An IP address.
    Ip,
    /// The log verbosity.
    Level,
    /// `--version`: alone it means `true`.
    Version,
}

impl Kind {
    /// The word in the help, as pflag prints it; empty for booleans.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bool => "",
            Self::Int => "int32",
            Self::Float => "float32",
            Self::Duration => "duration",
            Self::Text => "string",
            Self::List => "strings",
            Self::Ip => "ip",
            Self::Level => "level",
            Self::Version => "version[=true]",
        }
    }

    /// The value that the bare flag stands for; `None` when it needs one.
    pub const fn bare_value(self) -> Option<&'static str> {
        match self {
            Self::Bool | Self::Version => Some("true"),
            _ => None,
        }
    }
}

/// The group of a flag in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// For the manager as a whole.
    Generic,
    /// The connection to the API server.
    Api,
    /// Initialisation and addresses of Nodes.
    Node,
    /// Removal of Nodes.
    NodeLifecycle,
    /// Load balancers.
    Service,
    /// Which replica works.
    LeaderElection,
    /// Health and metrics.
    Serving,
    /// Logs, version, help.
    Global,
}

impl Section {
    /// All sections, in the order of the help.
    pub const ALL: [Self; 8] = [
        Self::Generic,
        Self::Api,
        Self::Node,
        Self::NodeLifecycle,
        Self::Service,
        Self::LeaderElection,
        Self::Serving,
        Self::Global,
    ];

    /// The title in the help and in the reference.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Generic => "Generic",
            Self::Api => "API server",
            Self::Node => "Cloud-node-controller",
            Self::NodeLifecycle => "Cloud-node-lifecycle-controller",
            Self::Service => "Service-lb-controller",
            Self::LeaderElection => "Leader election",
            Self::Serving => "Serving",
            Self::Global => "Global",
        }
    }
}

/// Writes a value into the arguments. The text of an error says what is accepted.
pub type SetFn = fn(&mut LowArgs, &str) -> Result<(), String>;

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name without dashes.
    pub name: &'static str,
    /// The one-letter form.
    pub short: Option<char>,
    /// The type of the value.
    pub kind: Kind,
    /// The default as it would be written; empty when there is none.
    pub default: &'static str,
    /// One or two sentences.
    pub help: &'static str,
    /// The group in the help.
    pub section: Section,
    /// Why it is deprecated: left out of the help, and its use is a warning with this text.
    pub deprecated: Option<&'static str>,
    /// Whether the Go managers do not have it.
    pub own: bool,
    /// Its effect.
    pub(super) set: SetFn,
}

/// Reads a boolean as Go's `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("{text:?} is not a boolean: write true or false")),
    }
}

/// Reads an integer as Go's `strconv.ParseInt(s, 0, 32)`: decimal, `0x`, `0o`, `0b` or a leading 0.
pub(super) fn parse_int(text: &str) -> Result<i32, String> {
    let (sign, digits) = match text.as_bytes().first() {
        Some(b'-') => ("-", text.get(1..).unwrap_or_default()),
        Some(b'+') => ("", text.get(1..).unwrap_or_default()),
        _ => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(hex) = lower.strip_prefix("0x") {
        (16, hex)
    } else if let Some(octal) = lower.strip_prefix("0o") {
        (8, octal)
    } else if let Some(binary) = lower.strip_prefix("0b") {
        (2, binary)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, lower.as_str())
    } else {
        (10, lower.as_str())
    };
    // A second sign would be accepted by the standard library.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(format!("{text:?} is not a 32 bit integer"));
    }
    i32::from_str_radix(&format!("{sign}{digits}"), radix)
        .map_err(|_| format!("{text:?} is not a 32 bit integer"))
}

/// Reads a finite number.
pub(super) fn parse_float(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())
        .ok_or_else(|| format!("{text:?} is not a number"))
}

/// Reads a Go duration.
pub(super) fn parse_duration(text: &str) -> Result<GoDuration, String> {
    GoDuration::parse(text).map_err(|error| error.to_string())
}

/// Splits a list at its commas.
pub(super) fn parse_list(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_read_as_go_reads_them() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(parse_bool(text), Ok(true));
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(parse_bool(text), Ok(false));
        }
        assert!(parse_bool("yes").is_err());
        assert!(parse_bool("").is_err());
    }

    #[test]
    fn integers_are_read_as_go_reads_them() {
        for (text, number) in [
            ("10", Some(10)),
            ("-1", Some(-1)),
            ("+7", Some(7)),
            ("0", Some(0)),
            ("0x10", Some(16)),
            ("-0X1f", Some(-31)),
            ("0o17", Some(15)),
            ("017", Some(15)),
            ("0b101", Some(5)),
            ("2147483648", None),
            ("08", None),
            ("1.5", None),
            ("--1", None),
            ("0x", None),
            ("", None),
            ("ten", None),
        ] {
            assert_eq!(parse_int(text).ok(), number, "{text}");
        }
    }
}
