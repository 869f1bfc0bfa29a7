//! Releases memory that was needed only for the start of a daemon.
//!
//! When a page of program code runs, the kernel maps this page and the pages around it. The start
//! of a daemon runs most of the program once, so most pages are mapped. This module drops the pages
//! after the start. They stay in the page cache, and the kernel maps a page again when it is
//! needed.

#![allow(unsafe_code, reason = "advice on memory has no safe form")]

use std::fs;
use std::path::Path;

use rustix::mm::{Advice, madvise};

pub(crate) fn give_back() {
    let (Ok(program), Ok(maps)) =
        (fs::read_link("/proc/self/exe"), fs::read_to_string("/proc/self/maps"))
    else {
        return;
    };
    for (start, length) in maps.lines().filter_map(|line| code(line, &program)) {
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is a read-only mapping of our own executable file. Nothing can have
        // written to the mapping, so the kernel can read dropped pages from the file again. The
        // kernel keeps the file as long as it is mapped.
        let _ = unsafe { madvise(start, length, Advice::LinuxDontNeed) };
    }
}

/// Parses a line of `/proc/self/maps`. Returns the start and length of the mapping if it contains
/// code of the program.
fn code(line: &str, program: &Path) -> Option<(usize, usize)> {
    let mut words = line.splitn(6, ' ');
    let (range, access) = (words.next()?, words.next()?);
    let file = words.nth(3)?.trim_start();
    if access != "r-xp" || Path::new(file) != program {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_given_back() {
        let program = Path::new("/opt/a program");
        let line = |access: &str, file: &str| {
            format!("55d0c0400000-55d0c0500000 {access} 00472000 fe:00 10218698   {file}")
        };
        let found = Some((0x55d0_c040_0000, 0x10_0000));
        assert_eq!(code(&line("r-xp", "/opt/a program"), program), found);
        for (access, file) in [
            ("r--p", "/opt/a program"),
            ("rw-p", "/opt/a program"),
            ("rwxp", "/opt/a program"),
            ("r-xp", "/usr/lib/libc.so.6"),
            ("r-xp", "/opt/a program (deleted)"),
            ("r-xp", ""),
        ] {
            assert_eq!(code(&line(access, file), program), None, "{access} {file}");
        }
        assert_eq!(code("", program), None);
        assert_eq!(code("7ffd4b5f2000-7ffd4b5f4000 r-xp 00000000 00:00 0", program), None);
    }

    #[test]
    fn what_was_given_back_still_runs() {
        give_back();
        assert_eq!(code("nonsense", Path::new("/")), None);
    }
}
