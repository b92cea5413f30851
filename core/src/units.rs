//! Sizes, percentages, spans of time and intervals as people write them.

use crate::time::Nanos;
use std::fmt;
use std::str::FromStr;

/// A number of bytes, written `8GiB`, `512 MiB`, `16GB` or `4096`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ByteSize(pub u64);

/// A share of something, written `10%`, `7.5 %` or `0.1`. Kept in millionths, so that it is exact and has one value on
/// every machine. More than the whole needs the sign: `150%`, because `10` is more likely ten percent than ten times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Share {
    /// Millionths of the whole.
    pub millionths: u32,
}

/// How often something is done: every so often, written `7d`, `12h`, `30min`, `90s` or `500ms`, or `never`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Interval {
    /// Once in this time.
    Every(Nanos),
    /// Not at all.
    Never,
}

/// A size, share, span or interval that cannot be understood, or that may mean something else than it says.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnitError {
    /// Not understood.
    #[error("`{text}` is no {what}; write it like {example}")]
    NotUnderstood {
        /// As written.
        text: String,
        /// What it was to be.
        what: &'static str,
        /// How others are written.
        example: &'static str,
    },
    /// A unit was left half written.
    #[error("`{text}` is no size; write {binary} (units of 1024) or {decimal} (units of 1000)")]
    HalfUnit {
        /// As written.
        text: String,
        /// With the unit in powers of two.
        binary: String,
        /// With the unit in powers of ten.
        decimal: String,
    },
    /// A share above one without a percent sign.
    #[error("`{text}` would be {text} times the whole; write {text}% (or {fraction})")]
    NoPercentSign {
        /// As written.
        text: String,
        /// So many percent as a fraction.
        fraction: String,
    },
}

fn not_understood(text: &str, what: &'static str, example: &'static str) -> UnitError {
    UnitError::NotUnderstood { text: text.to_owned(), what, example }
}

const SUFFIXES: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<ByteSize, UnitError> {
        let error = || not_understood(text, "size", "8GiB, 512MiB, 16GB or 4096");
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(digits);
        let suffix = suffix.trim();
        if let [b'K' | b'M' | b'G' | b'T'] = suffix.to_ascii_uppercase().as_bytes()
            && !number.is_empty()
        {
            let unit = suffix.to_ascii_uppercase();
            let (binary, decimal) = (format!("{number}{unit}iB"), format!("{number}{unit}B"));
            return Err(UnitError::HalfUnit { text: text.to_owned(), binary, decimal });
        }
        let factor = if suffix.is_empty() {
            1
        } else {
            SUFFIXES.iter().find(|(name, _)| name.eq_ignore_ascii_case(suffix)).ok_or_else(error)?.1
        };
        // Whole numbers stay exact; a fraction ("1.5GiB") is rounded down to a byte.
        if let Ok(number) = number.parse::<u64>() {
            return number.checked_mul(factor).map(ByteSize).ok_or_else(error);
        }
        let number = number.parse::<f64>().map_err(|_| error())? * factor as f64;
        if number.is_finite() && (0.0..u64::MAX as f64).contains(&number) {
            Ok(ByteSize(number as u64))
        } else {
            Err(error())
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((name, factor)) = SUFFIXES[..4].iter().rev().find(|(_, factor)| self.0 >= *factor) else {
            return write!(f, "{} B", self.0);
        };
        if self.0.is_multiple_of(*factor) {
            write!(f, "{} {name}", self.0 / factor)
        } else {
            write!(f, "{:.2} {name}", self.0 as f64 / *factor as f64)
        }
    }
}

/// A span, written `10s`, `1.5 s`, `500ms` or `2min`.
impl FromStr for Nanos {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Nanos, UnitError> {
        let error = || not_understood(text, "span of time", "10s, 500ms or 2min");
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(digits);
        let (_, unit) = SPANS.iter().find(|(name, _)| name.eq_ignore_ascii_case(suffix.trim())).ok_or_else(error)?;
        let nanos = number.parse::<f64>().map_err(|_| error())? * *unit as f64;
        if (0.0..u64::MAX as f64).contains(&nanos) { Ok(Nanos(nanos.round() as u64)) } else { Err(error()) }
    }
}

impl FromStr for Share {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Share, UnitError> {
        let error = || not_understood(text, "share", "10%, 7.5% or 0.1");
        let trimmed = text.trim();
        let (number, scale) = match trimmed.strip_suffix('%') {
            Some(number) => (number.trim(), 1e4),
            None => (trimmed, 1e6),
        };
        let number = number.parse::<f64>().map_err(|_| error())?;
        if scale == 1e6 && number > 1.0 && number.is_finite() {
            return Err(UnitError::NoPercentSign { text: trimmed.to_owned(), fraction: (number / 100.0).to_string() });
        }
        let millionths = (number * scale).round();
        if (0.0..=1e9).contains(&millionths) { Ok(Share { millionths: millionths as u32 }) } else { Err(error()) }
    }
}

impl Share {
    /// A whole number of percent.
    #[must_use]
    pub const fn percent(percent: u32) -> Share {
        Share { millionths: percent * 10_000 }
    }

    /// This share of `whole`, rounded up.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.millionths)).div_ceil(1_000_000) as u64
    }

    /// The share as a fraction of one.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.millionths) / 1e6
    }
}

/// How long somebody looks for what comes next before going to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Poll {
    /// As long as what came before says that it is worth it.
    #[default]
    Auto,
    /// For so long; for no time if that is zero.
    For(Nanos),
}

/// Spans of time and their nanoseconds, the longest first.
const SPANS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl Interval {
    /// A whole number of days.
    #[must_use]
    pub const fn days(days: u64) -> Interval {
        Interval::Every(Nanos(days * SPANS[0].1))
    }

    /// The time between one and the next, if there is a next.
    #[must_use]
    pub fn span(self) -> Option<Nanos> {
        match self {
            Interval::Every(span) => Some(span),
            Interval::Never => None,
        }
    }
}

impl FromStr for Interval {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Interval, UnitError> {
        let error = || not_understood(text, "interval", "7d, 12h, 30min, 90s or never");
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("never") {
            return Ok(Interval::Never);
        }
        match trimmed.parse() {
            Ok(Nanos::ZERO) | Err(_) => Err(error()),
            Ok(span) => Ok(Interval::Every(span)),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interval::Never => write!(f, "never"),
            Interval::Every(span) => match SPANS.iter().find(|(_, nanos)| span.0.is_multiple_of(*nanos)) {
                Some((name, nanos)) => write!(f, "{}{name}", span.0 / nanos),
                None => write!(f, "{span}"),
            },
        }
    }
}

impl FromStr for Poll {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Poll, UnitError> {
        if text.trim().eq_ignore_ascii_case("auto") {
            return Ok(Poll::Auto);
        }
        text.parse().map(Poll::For).map_err(|_| not_understood(text, "span of time", "auto, 0s, 50us or 1ms"))
    }
}

impl fmt::Display for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Poll::Auto => write!(f, "auto"),
            Poll::For(span) => Interval::Every(*span).fmt(f),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.millionths) / 1e4)
    }
}

/// Writes and reads types as the text that people use.
macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
pub(crate) use serde_as_text;

serde_as_text!(ByteSize, Interval, Poll, Share);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_understood_as_people_write_them() {
        let check = |text: &str, bytes| assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(bytes), "{text}");
        check("8GiB", 8 << 30);
        check("512 mib", 512 << 20);
        check("1.5KiB", 1536);
        check("16GB", 16_000_000_000);
        check("4096", 4096);
        for text in ["", "GiB", "8 Gibi", "-1", "1..2", "99999999999TiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn spans_are_understood_as_people_write_them() {
        let check = |text: &str, nanos| assert_eq!(text.parse(), Ok(Nanos(nanos)), "{text}");
        check("10s", 10_000_000_000);
        check("1.5 s", 1_500_000_000);
        check("500ms", 500_000_000);
        check("2 min", 120_000_000_000);
        check("3us", 3_000);
        check("1h", 3_600_000_000_000);
        for text in ["", "10", "s", "-1s", "1y", "1e30s", "9999999999999s"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_exact() {
        assert_eq!("10%".parse(), Ok(Share::percent(10)));
        assert_eq!("0.07".parse(), Ok(Share::percent(7)));
        assert_eq!(Share::percent(7).of(100), 7);
        assert_eq!(Share::percent(7).of(101), 8);
        assert_eq!("150%".parse(), Ok(Share::percent(150)));
        assert_eq!("1".parse(), Ok(Share::percent(100)));
        assert!("ten".parse::<Share>().is_err());
        assert!("-1%".parse::<Share>().is_err());
    }

    #[test]
    fn what_may_mean_something_else_is_refused_with_both_meanings() {
        let text = |error: UnitError| error.to_string();
        assert_eq!(text("10".parse::<Share>().unwrap_err()), "`10` would be 10 times the whole; write 10% (or 0.1)");
        assert_eq!(
            text("1.5".parse::<Share>().unwrap_err()),
            "`1.5` would be 1.5 times the whole; write 1.5% (or 0.015)"
        );
        assert_eq!(
            text("1g".parse::<ByteSize>().unwrap_err()),
            "`1g` is no size; write 1GiB (units of 1024) or 1GB (units of 1000)"
        );
    }

    #[test]
    fn intervals_are_understood_and_printed_as_people_write_them() {
        let check = |text: &str, interval: Interval, printed: &str| {
            assert_eq!(text.parse::<Interval>().unwrap(), interval, "{text}");
            assert_eq!(interval.to_string(), printed);
        };
        check("7d", Interval::days(7), "7d");
        check("48 h", Interval::days(2), "2d");
        check("90MIN", Interval::Every(Nanos(5_400_000_000_000)), "90min");
        check("500ms", Interval::Every(Nanos::from_millis(500)), "500ms");
        check("never", Interval::Never, "never");
        for text in ["", "7", "d", "0s", "-1d", "7 days", "999999999999d"] {
            assert!(text.parse::<Interval>().is_err(), "{text}");
        }
    }

    #[test]
    fn polling_is_a_span_or_up_to_the_server() {
        assert_eq!("auto".parse(), Ok(Poll::Auto));
        assert_eq!("50us".parse(), Ok(Poll::For(Nanos(50_000))));
        assert_eq!("0s".parse(), Ok(Poll::For(Nanos::ZERO)));
        assert_eq!(Poll::For(Nanos(50_000)).to_string(), "50us");
        assert!("never".parse::<Poll>().unwrap_err().to_string().contains("auto, 0s"));
    }

    #[test]
    fn sizes_print_in_the_largest_unit_that_fits() {
        assert_eq!(ByteSize(8 << 30).to_string(), "8 GiB");
        assert_eq!(ByteSize(1536).to_string(), "1.50 KiB");
        assert_eq!(ByteSize(100).to_string(), "100 B");
    }
}
