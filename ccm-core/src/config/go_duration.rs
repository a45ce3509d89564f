//! Durations as Go writes and reads them: `1h15m`, `-1.5s`, `300ms`, `0`.

use std::{fmt, time::Duration};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A signed duration in nanoseconds, the range of Go's `time.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(i64);

/// Why a text is not a duration. The wording names the text and an accepted form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not of the form number-unit-number-unit….
    #[error("invalid duration {0:?}: write numbers with units, for example \"10s\" or \"1h30m\"")]
    Invalid(String),
    /// A number without a unit, a frequent mistake.
    #[error("missing unit in duration {0:?}: write for example \"{0}s\"")]
    MissingUnit(String),
    /// A unit that Go does not know, such as `d`.
    #[error("unknown unit {unit:?} in duration {text:?}: use ns, us, ms, s, m or h")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
    /// More than about 292 years.
    #[error("duration {0:?} is too long: the limit is about 292 years")]
    TooLong(String),
}

impl GoDuration {
    /// A duration of whole seconds.
    pub const fn from_secs(seconds: i32) -> Self {
        // An i32 of seconds is far inside the range.
        Self(seconds as i64 * SECOND as i64)
    }

    /// Reads what Go's `time.ParseDuration` reads.
    ///
    /// # Errors
    /// See [`DurationError`].
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let (negative, digits) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        if digits == "0" {
            return Ok(Self(0));
        }
        if digits.is_empty() {
            return Err(invalid());
        }
        let mut rest = digits;
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (nanos, left) = component(rest, text)?;
            total = total
                .checked_add(nanos)
                .filter(|sum| *sum <= 1 << 63)
                .ok_or_else(|| DurationError::TooLong(text.to_owned()))?;
            rest = left;
        }
        let signed = if negative {
            0_i64.checked_sub_unsigned(total)
        } else {
            i64::try_from(total).ok()
        };
        signed
            .map(Self)
            .ok_or_else(|| DurationError::TooLong(text.to_owned()))
    }

    /// The nanoseconds.
    pub const fn nanoseconds(self) -> i64 {
        self.0
    }

    /// The duration when it is not negative.
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

/// One number with its unit: its nanoseconds and what is left.
fn component<'a>(rest: &'a str, text: &str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
    let (whole, rest) = digits(rest);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => digits(after),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let unit = match name {
        "" => return Err(DurationError::MissingUnit(text.to_owned())),
        "ns" => 1,
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        other => {
            return Err(DurationError::UnknownUnit {
                unit: other.to_owned(),
                text: text.to_owned(),
            });
        }
    };
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| too_long())?
    };
    let nanos = whole.checked_mul(unit).ok_or_else(too_long)?;
    let nanos = nanos
        .checked_add(fraction_nanos(fraction, unit))
        .ok_or_else(too_long)?;
    Ok((nanos, rest))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// `0.fraction` units. Digits below a nanosecond are cut off, as Go does.
fn fraction_nanos(fraction: &str, unit: u64) -> u64 {
    let mut nanos = 0;
    let mut scale: u64 = 1;
    let mut value: u64 = 0;
    // 15 digits are below a nanosecond even for hours, and the product stays in range.
    for digit in fraction.bytes().take(15) {
        value = value * 10 + u64::from(digit - b'0');
        scale *= 10;
    }
    if let Ok(product) = u64::try_from(u128::from(value) * u128::from(unit) / u128::from(scale)) {
        nanos = product;
    }
    nanos
}

impl From<Duration> for GoDuration {
    /// What is too long becomes the longest one.
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for GoDuration {
    /// Go's `Duration.String`: `12h0m0s`, `5m0s`, `1.5s`, `100ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        if total == 0 {
            return f.write_str("0s");
        }
        if total < MICROSECOND {
            return write!(f, "{total}ns");
        }
        if total < MILLISECOND {
            return write!(f, "{}\u{b5}s", decimal(total, MICROSECOND));
        }
        if total < SECOND {
            return write!(f, "{}ms", decimal(total, MILLISECOND));
        }
        let (hours, minutes) = (total / HOUR, total % HOUR / MINUTE);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(total % MINUTE, SECOND))
    }
}

/// `value / unit` with as many decimals as it needs.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, part) = (value / unit, value % unit);
    if part == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let part = format!("{part:0width$}");
    format!("{whole}.{}", part.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("0s", 0),
            ("5s", 5_000_000_000),
            ("+5s", 5_000_000_000),
            ("-5s", -5_000_000_000),
            ("1h15m30.918s", 4_530_918_000_000),
            ("5.6s", 5_600_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("1.0s", 1_000_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("13ms", 13_000_000),
            ("15m", 900_000_000_000),
            ("16h", 57_600_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("1.9ns", 1),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(
                GoDuration::parse(text).map(GoDuration::nanoseconds),
                Ok(nanos),
                "{text}"
            );
        }
    }

    #[test]
    fn what_go_refuses_is_refused_with_the_fix() {
        for (text, part) in [
            ("", "invalid duration"),
            ("-", "invalid duration"),
            (".", "invalid duration"),
            ("-.", "invalid duration"),
            (".s", "invalid duration"),
            ("s", "invalid duration"),
            ("1h 5m", "unknown unit"),
            (
                "3",
                "missing unit in duration \"3\": write for example \"3s\"",
            ),
            ("1h5", "missing unit"),
            ("2d", "unknown unit \"d\""),
            ("9223372036854775808ns", "too long"),
            ("-9223372036854775809ns", "too long"),
            ("3000000h", "too long"),
            ("99999999999999999999999s", "too long"),
        ] {
            let error = GoDuration::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (100_000_000, "100ms"),
            (3_300_000_000, "3.3s"),
            (300_000_000_000, "5m0s"),
            (245_001_000_000, "4m5.001s"),
            (43_200_000_000_000, "12h0m0s"),
            (-5_000_000_000, "-5s"),
        ] {
            assert_eq!(GoDuration(nanos).to_string(), text);
        }
        let elapsed = GoDuration::from(Duration::from_micros(1_500));
        assert_eq!(elapsed.to_string(), "1.5ms");
        assert_eq!(GoDuration::from(Duration::MAX).nanoseconds(), i64::MAX);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(
            text in "[-+]?([0-9]{0,22}[.]?[0-9]{0,22}(ns|us|\u{b5}s|ms|s|m|h|d)?){0,3}|.{0,20}"
        ) {
            let _ = GoDuration::parse(&text);
        }

        #[test]
        fn what_is_written_is_read_back(nanos in any::<i64>()) {
            let duration = GoDuration(nanos);
            prop_assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
        }
    }
}
