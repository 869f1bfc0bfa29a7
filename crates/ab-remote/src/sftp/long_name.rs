//! Formats an entry like `ls -l`. SFTP version 3 requires this text in addition to the attributes.

use std::fmt::Write;

use ab_core::metadata::FileKind;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Times that are older than this number of seconds, or in the future, are shown with their year.
const RECENT: u64 = 182 * 24 * 3600;

pub(super) fn long_name(name: &str, kind: FileKind, mode: u32, size: u64, times: Times) -> String {
    let mut line = String::with_capacity(64 + name.len());
    line.push(match kind {
        FileKind::File => '-',
        FileKind::Dir => 'd',
        FileKind::Symlink => 'l',
        FileKind::Other => 'p',
    });
    for (bit, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        line.push(if mode & (1 << bit) != 0 { letter } else { '-' });
    }
    let (year, month, day) = date(times.modified / 86_400);
    let month = MONTHS[month];
    let _ = write!(line, "    1 agent    agent    {size:>8} {month} {day:>2} ");
    let age = times.now.checked_sub(times.modified);
    let _ = if age.is_some_and(|age| age < RECENT) {
        let minutes = times.modified % 86_400 / 60;
        write!(line, "{:02}:{:02} {name}", minutes / 60, minutes % 60)
    } else {
        write!(line, "{year:>5} {name}")
    };
    line
}

/// Seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) modified: u64,
    pub(super) now: u64,
}

/// Converts days since 1970 to year, month (counted from 0) and day. This is Howard Hinnant's
/// algorithm.
fn date(days: u64) -> (u64, usize, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = (shifted + 2) % 12;
    let year = year_of_era + era * 400 + u64::from(month < 2);
    (year, usize::try_from(month).unwrap_or_default(), day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_ls() {
        // The time 2026-11-16 03:40:05 UTC.
        let now = 1_794_800_405;
        let line = |kind, mode, size, modified| {
            long_name("a b", kind, mode, size, Times { modified, now })
        };
        assert_eq!(
            line(FileKind::File, 0o644, 12, now),
            "-rw-r--r--    1 agent    agent          12 Nov 16 03:40 a b"
        );
        assert_eq!(
            line(FileKind::Dir, 0o755, 0, 951_782_400),
            "drwxr-xr-x    1 agent    agent           0 Feb 29  2000 a b"
        );
        assert_eq!(
            line(FileKind::Symlink, 0o777, 123_456_789, 0),
            "lrwxrwxrwx    1 agent    agent    123456789 Jan  1  1970 a b"
        );
    }
}
