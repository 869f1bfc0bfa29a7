//! A name that is unique to this process. Everything that this process creates on the host has a
//! name that begins with this name. So all of it can be found and removed when the process is gone.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The prefix of the names of all processes that use this library.
const OURS: &str = "agent-backend-";

static RANDOM: LazyLock<String> =
    LazyLock::new(|| format!("{:016x}", RandomState::new().build_hasher().finish()));

static PREFIX: LazyLock<String> =
    LazyLock::new(|| format!("{OURS}{}-{}-{}-", namespace(), std::process::id(), *RANDOM));

/// Returns random text of this process. It is part of the environment variable that marks the
/// commands of this process.
pub(crate) fn mark() -> &'static str {
    &RANDOM
}

/// Returns the prefix of every name that this process makes.
pub(crate) fn prefix() -> &'static str {
    &PREFIX
}

/// Returns a name that no other call and no other process makes.
pub(crate) fn next_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}{}", prefix(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the id of the process that made `name`. `None` if the process is not in our pid
/// namespace.
pub(crate) fn maker(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(OURS)?.split('-');
    // In another pid namespace, the same id belongs to another process or to none.
    let seen = parts.next()? == namespace();
    let pid = parts.next()?.parse().ok()?;
    let (_random, number) = (parts.next()?, parts.next()?);
    (seen && number.parse::<u64>().is_ok() && parts.next().is_none()).then_some(pid)
}

/// Returns the number of the pid namespace of our process.
fn namespace() -> &'static str {
    static NUMBER: LazyLock<String> = LazyLock::new(|| {
        let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let digits = |c: &char| c.is_ascii_digit();
        link.to_string_lossy().chars().filter(digits).collect()
    });
    &NUMBER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_who_made_it() {
        let (one, other) = (next_name(), next_name());
        assert_ne!(one, other);
        assert_eq!(maker(&one), Some(std::process::id()));
        let here = namespace();
        for (name, expect) in [
            (format!("agent-backend-{here}-7-abc-0"), Some(7)),
            (format!("agent-backend-{here}1-7-abc-0"), None),
            (format!("agent-backend-{here}-7-abc-0-1"), None),
            (format!("agent-backend-{here}-7-abc"), None),
            (format!("agent-backend-{here}-x-abc-0"), None),
            ("agent-backend-probe-7-0".to_owned(), None),
            ("agent-backend-7-0".to_owned(), None),
            ("x".to_owned(), None),
        ] {
            assert_eq!(maker(&name), expect, "{name}");
        }
    }
}
