//! What a flag is: one item holds its name, type, default, help and effect.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use super::{GoDuration, LowArgs, SniSettings};

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
    /// Integers, comma separated; repeated flags append.
    IntList,
    /// An integer in Go's `int`: a port, a count.
    Number,
    /// `name=bool`, comma separated; repeated flags merge.
    Map,
    /// `key=value`, comma separated; repeated flags merge.
    Pairs,
    /// One text a flag; repeated flags append.
    Array,
    /// A number in Go's `float64`.
    Double,
    /// A certificate with its key and names; repeated flags append.
    CertKey,
    /// A Kubernetes quantity of bytes.
    Quantity,
    /// `pattern=N`, comma separated.
    Modules,
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
            Self::IntList => "int32s",
            Self::Number => "int",
            Self::Map => "mapStringBool",
            Self::Pairs => "stringToString",
            Self::Array => "stringArray",
            Self::Double => "float",
            Self::CertKey => "namedCertKey",
            Self::Quantity => "quantity",
            Self::Modules => "pattern=N,...",
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

    /// What stands between the values of a repeated flag; `None`: the last one wins.
    pub(super) const fn joint(self) -> Option<&'static str> {
        match self {
            Self::List | Self::IntList | Self::Map | Self::Pairs | Self::Array => Some(","),
            Self::CertKey => Some(";"),
            _ => None,
        }
    }

    /// Whether all values of a repeated flag are read together.
    pub(super) const fn is_list(self) -> bool {
        matches!(self, Self::List | Self::IntList)
    }
}

/// The group of a flag in the help: those of the Go managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// For the manager as a whole.
    Generic,
    /// Initialisation and addresses of Nodes.
    Node,
    /// Removal of Nodes.
    NodeLifecycle,
    /// Load balancers.
    Service,
    /// Profiles of the running process.
    Debugging,
    /// A second lock for some controllers.
    LeaderMigration,
    /// The secure port.
    SecureServing,
    /// Who is asking.
    Authentication,
    /// Who may ask.
    Authorization,
    /// Which webhooks are hosted.
    Webhook,
    /// The webhooks' port.
    WebhookServing,
    /// What has no group of its own.
    Misc,
    /// Logs, version, help.
    Global,
    /// Of one provider only, under this title.
    Provider(&'static str),
}

impl Section {
    /// All sections but those of providers, in the order of the help.
    pub const ALL: [Self; 13] = [
        Self::Generic,
        Self::Node,
        Self::NodeLifecycle,
        Self::Service,
        Self::Debugging,
        Self::LeaderMigration,
        Self::SecureServing,
        Self::Authentication,
        Self::Authorization,
        Self::Webhook,
        Self::WebhookServing,
        Self::Misc,
        Self::Global,
    ];

    /// The title in the help and in the reference.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Generic => "Generic",
            Self::Node => "Cloud-node-controller",
            Self::NodeLifecycle => "Cloud-node-lifecycle-controller",
            Self::Service => "Service-lb-controller",
            Self::Debugging => "Debugging",
            Self::LeaderMigration => "Leader-migration",
            Self::SecureServing => "Secure serving",
            Self::Authentication => "Authentication",
            Self::Authorization => "Authorization",
            Self::Webhook => "Webhook",
            Self::WebhookServing => "Webhook serving",
            Self::Misc => "Misc",
            Self::Global => "Global",
            Self::Provider(title) => title,
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
    /// Why it is accepted although it changes nothing here; `None`: it takes effect.
    pub inert: Option<&'static str>,
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

/// Reads an integer as Go's `strconv.ParseInt(s, 0, 32)`: decimal, `0x`, `0o`, `0b` or a leading 0,
/// and underscores between the digits.
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
    let wrong = || format!("{text:?} is not a 32 bit integer");
    // One may also stand behind the prefix. What is no digit of the radix is refused below.
    let in_place = underscores_are_between(&lower, |c| c.is_ascii_alphanumeric());
    let digits = digits.replace('_', "");
    // A second sign would be accepted by the standard library.
    if !in_place || !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(wrong());
    }
    i32::from_str_radix(&format!("{sign}{digits}"), radix).map_err(|_| wrong())
}

/// Whether every underscore stands between two characters of the kind.
fn underscores_are_between(text: &str, kind: fn(char) -> bool) -> bool {
    let parts: Vec<&str> = text.split('_').collect();
    parts.windows(2).all(|pair| match pair {
        [before, after] => before.ends_with(kind) && after.starts_with(kind),
        _ => true,
    })
}

/// Reads a log verbosity, which is not negative.
pub(super) fn parse_level(text: &str) -> Result<i32, String> {
    parse_int(text)
        .ok()
        .filter(|level| *level >= 0)
        .ok_or_else(|| format!("{text:?} is not a verbosity: write 0 or a higher number"))
}

/// Reads an IP address.
pub(super) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    // pflag trims it.
    text.trim()
        .parse()
        .map_err(|_| format!("{text:?} is not an IP address"))
}

/// Reads a finite decimal number; underscores may stand between digits, as in Go.
pub(super) fn parse_float(text: &str) -> Result<f64, String> {
    let in_place = underscores_are_between(text, |c| c.is_ascii_digit());
    text.replace('_', "")
        .parse::<f64>()
        .ok()
        .filter(|number| in_place && number.is_finite())
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

/// Reads integers, split at commas.
pub(super) fn parse_int_list(text: &str) -> Result<Vec<i32>, String> {
    parse_list(text)
        .iter()
        .map(|item| parse_int(item))
        .collect()
}

/// Reads `key=value`, comma separated, as Go's `pflag`: a text with one `=` is one pair, whatever
/// commas it has; of several a pair with a comma stands in double quotes.
pub(super) fn parse_pairs(text: &str) -> Result<BTreeMap<String, String>, String> {
    let items = match text.matches('=').count() {
        1 => vec![text.trim_matches('"').to_owned()],
        _ => split_quoted(text)?,
    };
    items
        .into_iter()
        .map(|item| match item.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(format!("{item} must be formatted as key=value")),
        })
        .collect()
}

/// Splits at commas outside of double quotes; within them `""` is a quote.
fn split_quoted(text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("{text:?} has a double quote that neither begins nor ends a pair");
    let (mut items, mut item) = (Vec::new(), String::new());
    let mut characters = text.chars().peekable();
    let (mut quoted, mut ended) = (false, false);
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                item.push('"');
            }
            '"' if quoted => (quoted, ended) = (false, true),
            '"' if item.is_empty() && !ended => quoted = true,
            ',' if !quoted => {
                items.push(std::mem::take(&mut item));
                ended = false;
            }
            '"' => return Err(wrong()),
            _ if ended => return Err(wrong()),
            c => item.push(c),
        }
    }
    if quoted {
        return Err(wrong());
    }
    items.push(item);
    Ok(items)
}

/// Reads `certificate,key[:names]`.
pub(super) fn parse_cert_key(text: &str) -> Result<SniSettings, String> {
    let form = || {
        format!("{text:?} is not a pair: write certificate,key or certificate,key:name,other.name")
    };
    let (pair, names) = match text.split_once(':') {
        Some((pair, names)) => (pair, Some(names.trim())),
        None => (text, None),
    };
    let (certificate, key) = pair.split_once(',').ok_or_else(form)?;
    let (certificate, key) = (certificate.trim(), key.trim());
    if certificate.is_empty() || key.is_empty() || key.contains(',') || names == Some("") {
        return Err(form());
    }
    let names = names.unwrap_or_default();
    Ok(SniSettings {
        certificate: PathBuf::from(certificate),
        key: PathBuf::from(key),
        names: parse_list(names)
            .iter()
            .map(|name| name.trim().to_owned())
            .collect(),
    })
}

/// Reads a Kubernetes quantity of bytes (`64Ki`, `1M`, `2e3`); parts of a byte are rounded up.
pub(super) fn parse_quantity(text: &str) -> Result<u64, String> {
    quantity(text).ok_or_else(|| {
        format!("{text:?} is not a quantity of bytes: write for example 0, 500k or 64Ki")
    })
}

fn quantity(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text
        .find(|c: char| c != '.' && !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let digits: u128 = format!("{whole}{part}").parse().ok()?;
    let places = u32::try_from(part.len()).ok()?;
    let binary = |power: u32| Some((1_u128 << (10 * power), 0));
    let (times, exponent) = match suffix {
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "" => Some((1, 0)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?;
            exponent.parse::<i32>().ok().map(|exponent| (1, exponent))
        }
    }?;
    let exponent = exponent.checked_sub_unsigned(places)?;
    let power = 10_u128.checked_pow(exponent.unsigned_abs())?;
    let scaled = digits.checked_mul(times)?;
    let bytes = if exponent >= 0 {
        scaled.checked_mul(power)?
    } else {
        scaled.div_ceil(power)
    };
    u64::try_from(bytes).ok()
}

/// What a value of `--version` asks for.
pub(super) enum VersionArg {
    /// Nothing.
    Off,
    /// To print it for people.
    Print,
    /// To print all that is known.
    PrintRaw,
    /// To report this version instead of the build's.
    Report(String),
}

/// Reads a value of `--version`.
pub(super) fn parse_version(text: &str) -> Result<VersionArg, String> {
    if text == "raw" {
        return Ok(VersionArg::PrintRaw);
    }
    if text.strip_prefix('v').is_some_and(is_semantic_version) {
        return Ok(VersionArg::Report(text.to_owned()));
    }
    match parse_bool(text) {
        Ok(true) => Ok(VersionArg::Print),
        Ok(false) => Ok(VersionArg::Off),
        Err(_) => Err(format!(
            "{text:?}: write true, false, raw or a version such as v1.2.3"
        )),
    }
}

/// `1.2.3`, `1.2.3-rc.1`, `1.2.3+build`.
fn is_semantic_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').unwrap_or((text, "none"));
    let (core, pre) = text.split_once('-').unwrap_or((text, "none"));
    let identifiers = |text: &str| {
        text.split('.').all(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
    };
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3
        && numbers.iter().all(|number| {
            let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            digits && (*number == "0" || !number.starts_with('0'))
        })
        && identifiers(pre)
        && identifiers(build)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_finite_and_decimal() {
        for (text, number) in [
            ("20", Some(20.0)),
            ("-.5", Some(-0.5)),
            ("1e3", Some(1000.0)),
            ("1_000.2_5", Some(1000.25)),
            ("1_.5", None),
            ("1._5", None),
            ("1e_5", None),
            ("inf", None),
            ("NaN", None),
            ("1e999", None),
            ("", None),
        ] {
            assert_eq!(parse_float(text).ok(), number, "{text}");
        }
    }

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
            ("1_000", Some(1000)),
            ("0_17", Some(15)),
            ("0x_1f", Some(31)),
            ("-2147483648", Some(i32::MIN)),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("0x_", None),
            ("0x_+1", None),
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

    #[test]
    fn quantities_are_bytes_rounded_up() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("64Ki", Some(65_536)),
            ("1.5Ki", Some(1_536)),
            ("500k", Some(500_000)),
            ("2e3", Some(2_000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("1500m", Some(2)),
            ("1n", Some(1)),
            (".5M", Some(500_000)),
            ("1e-3", Some(1)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("-1", None),
            ("1KB", None),
            ("1e99", None),
            ("99Ei", None),
            ("Ki", None),
        ] {
            assert_eq!(parse_quantity(text).ok(), bytes, "{text}");
        }
    }

    #[test]
    fn a_certificate_pair_may_carry_names() {
        let pair = parse_cert_key(" a.crt , a.key : *.example.com, b ").unwrap();
        assert_eq!(pair.certificate, PathBuf::from("a.crt"));
        assert_eq!(pair.key, PathBuf::from("a.key"));
        assert_eq!(pair.names, ["*.example.com", "b"]);
        assert_eq!(parse_cert_key("a,b").unwrap().names, Vec::<String>::new());
        for text in ["", "a", "a,b:", "a,b,c", "a,", ",b", "a,b,c:d"] {
            let error = parse_cert_key(text).unwrap_err();
            assert!(error.contains("certificate,key"), "{text}: {error}");
        }
    }

    #[test]
    fn a_semantic_version_has_three_numbers() {
        for text in [
            "1.2.3",
            "0.0.0",
            "1.2.3-rc.1",
            "1.2.3+dirty",
            "1.2.3-a-b+c.d",
        ] {
            assert!(is_semantic_version(text), "{text}");
        }
        for text in [
            "",
            "1.2",
            "1.2.3.4",
            "1.02.3",
            "1.2.x",
            "1.2.3-",
            "1.2.3+",
            "1.2.3-a..b",
        ] {
            assert!(!is_semantic_version(text), "{text}");
        }
    }

    #[test]
    fn pairs_are_read_as_go_reads_them() {
        for (text, pairs) in [
            ("a=1", Some(vec![("a", "1")])),
            ("b=2,a=1", Some(vec![("a", "1"), ("b", "2")])),
            ("a=1,a=2", Some(vec![("a", "2")])),
            ("a=", Some(vec![("a", "")])),
            // One pair has whatever commas it has.
            ("a=1,2", Some(vec![("a", "1,2")])),
            ("\"a=1,2\"", Some(vec![("a", "1,2")])),
            ("\"a=1,2\",b=x\"", None),
            ("\"a=1,2\",b=3", Some(vec![("a", "1,2"), ("b", "3")])),
            (
                "\"a=say \"\"x\"\"\",b=3",
                Some(vec![("a", "say \"x\""), ("b", "3")]),
            ),
            ("a=1=2", Some(vec![("a", "1=2")])),
            ("a=1,b=2,c", None),
            ("a=1,\"b=2", None),
            ("a", None),
            ("", None),
        ] {
            let pairs = pairs.map(|pairs| {
                let owned = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
                pairs.into_iter().map(owned).collect::<BTreeMap<_, _>>()
            });
            assert_eq!(parse_pairs(text).ok(), pairs, "{text}");
        }
    }

    #[test]
    fn a_verbosity_is_not_negative() {
        assert_eq!(parse_level("4"), Ok(4));
        assert!(parse_level("-1").is_err() && parse_level("x").is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "[-+0-9a-zA-Z_.,:;]{0,16}|.{0,24}") {
            let _ = (parse_bool(&text), parse_float(&text), parse_ip(&text), parse_level(&text));
            let _ = parse_pairs(&text);
            let _ = (parse_int_list(&text), parse_duration(&text), parse_version(&text));
            if let Ok(pair) = parse_cert_key(&text) {
                prop_assert!(!pair.certificate.as_os_str().is_empty());
                prop_assert!(!pair.key.as_os_str().is_empty());
            }
            // A list is its text, and as long as it has commas.
            prop_assert_eq!(parse_list(&text).join(","), text);
        }

        #[test]
        fn an_integer_is_read_in_every_radix(number: i32) {
            let sign = if number < 0 { "-" } else { "" };
            let size = number.unsigned_abs();
            for text in [
                format!("{number}"),
                format!("{sign}0x{size:X}"),
                format!("{sign}0o{size:o}"),
                format!("{sign}0{size:o}"),
                format!("{sign}0b{size:b}"),
            ] {
                prop_assert_eq!(parse_int(&text), Ok(number), "{}", text);
            }
        }

        #[test]
        fn only_what_fits_is_an_integer(number: i64) {
            prop_assert_eq!(parse_int(&number.to_string()).ok(), i32::try_from(number).ok());
        }

        #[test]
        fn a_number_is_read_back(number in proptest::num::f64::NORMAL | proptest::num::f64::ZERO) {
            prop_assert_eq!(parse_float(&number.to_string()), Ok(number));
        }

        #[test]
        fn an_address_is_read_back(address: IpAddr) {
            prop_assert_eq!(parse_ip(&format!(" {address} ")), Ok(address));
        }

        #[test]
        fn a_quantity_is_its_number_times_its_unit(number in 0..10_000_u64, part in 0..1000_u64) {
            let units = [("", 1), ("k", 1_000), ("Ki", 1 << 10), ("M", 1_000_000), ("Mi", 1 << 20),
                ("Gi", 1 << 30), ("e6", 1_000_000)];
            for (unit, times) in units {
                let text = format!("{number}.{part:03}{unit}");
                let want = ((number * 1000 + part) * times).div_ceil(1000);
                prop_assert_eq!(parse_quantity(&text), Ok(want), "{}", text);
            }
        }

        #[test]
        fn any_three_numbers_are_a_version(
            a: u32, b: u32, c: u32,
            pre in "[0-9A-Za-z-]{1,4}(\\.[0-9A-Za-z-]{1,4})?",
        ) {
            let version = format!("{a}.{b}.{c}");
            prop_assert!(is_semantic_version(&version));
            let (pre_release, build) = (format!("{version}-{pre}"), format!("{version}+{pre}"));
            prop_assert!(is_semantic_version(&pre_release));
            prop_assert!(is_semantic_version(&build));
            let padded = format!("0{version}");
            prop_assert!(!is_semantic_version(&padded));
        }
    }
}
