//! Parses times and sizes in the form in which people write them.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Maximum time. A deadline much further away cannot be represented.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Parses a time such as `90`, `90s`, `1.5m`, `2h` or `250ms`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit of time '{unit}': use ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| format!("'{number}' is not a number"))?;
    let seconds = number * seconds;
    if seconds > LONGEST.as_secs_f64() {
        return Err(format!("'{text}' is too long: at most 100 years"));
    }
    let time = Duration::try_from_secs_f64(seconds).ok();
    time.filter(|time| !time.is_zero()).ok_or_else(|| "must be more than zero".to_owned())
}

/// Parses a size such as `4096`, `64K`, `512M` or `2G`. Units are powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(format!("unknown unit of size '{unit}': use K, M, G or T")),
    };
    let number: u64 = number.parse().map_err(|_| format!("'{number}' is not a whole number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

/// Parses a size that must be more than zero.
pub(crate) fn some_size(text: &str) -> Result<u64, String> {
    size(text).and_then(|size| match size {
        0 => Err("must be more than zero".to_owned()),
        _ => Ok(size),
    })
}

/// Parses a number that must be more than zero.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        Ok(_) | Err(_) => Err("must be a whole number, at least 1".to_owned()),
    }
}

/// Returns a parser of whole numbers in a range.
pub(crate) fn number(
    range: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text: &str| {
        let parsed = text.parse().ok().filter(|number| range.contains(number));
        parsed.ok_or_else(|| match (*range.start(), *range.end()) {
            (start, u32::MAX) => format!("must be a whole number, at least {start}"),
            (start, end) => format!("must be a whole number from {start} to {end}"),
        })
    }
}

/// Parses a whole number, which may be 0.
pub(crate) fn any_count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "must be a whole number".to_owned())
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, millis) in [("90", 90_000), ("1.5m", 90_000), ("2h", 7_200_000), ("5ms", 5)] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "0", "5d", "-1", "1e99h", "NaN", "1.2.3"] {
            assert!(time(text).is_err(), "{text}");
        }
        for text in ["18000000000000000000", "900000h", "99999999999999999999999999s"] {
            assert_eq!(time(text), Err(format!("'{text}' is too long: at most 100 years")));
        }
        assert_eq!(time("876000h"), Ok(LONGEST));
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("64K", 65536), ("1GiB", 1 << 30)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "1.5G", "5X", "-1", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_outside_the_range_are_refused_in_words() {
        let pages = number(1..=200);
        assert_eq!(pages("200"), Ok(200));
        for text in ["0", "201", "x", "", "-1", "99999999999"] {
            assert_eq!(pages(text), Err("must be a whole number from 1 to 200".to_owned()));
        }
        assert_eq!(number(1..=u32::MAX)("0"), Err("must be a whole number, at least 1".to_owned()));
        assert_eq!(any_count("x"), Err("must be a whole number".to_owned()));
    }
}
