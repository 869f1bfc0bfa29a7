//! Host keys in the format of OpenSSH's `known_hosts`: patterns, hashed names, ports, several keys
//! for one host, and revoked keys.
//!
//! - A line that cannot be parsed is ignored, as in OpenSSH.
//! - Host certificates are not supported, so `@cert-authority` lines are ignored.
//! - If no listed key of a host is equal to the new key, the key of the host has changed. This also
//!   applies if the new key is of another type. Otherwise an attacker could pass the check with a
//!   key of an unlisted type.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, Marker};
use russh::keys::{Algorithm, PublicKey};

use super::address::HostPort;

/// Maximum size of a file in bytes. Loading a larger file is an error.
const LONGEST_FILE: u64 = 16 * 1024 * 1024;

/// Where keys are looked up: first in the given lines, and then in files.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KnownHosts {
    /// Lines in the format of `known_hosts`.
    pub text: String,
    /// Files in the format of `known_hosts`. A missing file counts as empty. New keys are added to
    /// the first file.
    pub files: Vec<PathBuf>,
}

impl KnownHosts {
    /// Looks keys up in files.
    pub fn from_files(files: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self { text: String::new(), files: files.into_iter().map(Into::into).collect() }
    }

    /// Looks keys up in given lines.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self { text: text.into(), files: Vec::new() }
    }

    /// Reads and parses the files.
    pub(crate) fn load(&self) -> io::Result<Lines> {
        let mut lines = Lines::default();
        lines.add(None, &self.text);
        for path in &self.files {
            match read(path) {
                Ok(text) => lines.add(Some(path), &text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let what = format!("read {}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), what));
                }
            }
        }
        Ok(lines)
    }
}

impl fmt::Debug for KnownHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownHosts")
            .field("lines", &self.text.lines().count())
            .field("files", &self.files)
            .finish()
    }
}

/// What is known about a key for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Known,
    Unknown,
    /// The host has other keys. `known` is one of them.
    Changed {
        known: Box<PublicKey>,
        place: Place,
    },
    Revoked {
        place: Place,
    },
}

/// Where a line was found, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: Option<PathBuf>,
    pub(crate) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "line {} of {}", self.line, file.display()),
            None => write!(f, "line {} of the known hosts given", self.line),
        }
    }
}

/// The lines that could be parsed, with their positions.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<(Place, Entry)>);

impl Lines {
    fn add(&mut self, file: Option<&Path>, text: &str) {
        for (number, line) in text.lines().enumerate() {
            // The parser expects that words are separated by single spaces.
            let words: Vec<&str> = line.split_whitespace().collect();
            let line = words.join(" ");
            if !line.starts_with('#')
                && let Ok(entry) = line.parse()
            {
                let place = Place { file: file.map(Path::to_owned), line: number + 1 };
                self.0.push((place, entry));
            }
        }
    }

    /// Looks up a key for a host. An entry for the host without a port also applies. If there are
    /// no entries for the port, it can make the key known. It can always revoke the key.
    pub(crate) fn standing(&self, host: &HostPort, key: &PublicKey) -> Standing {
        let standing = self.standing_as(&host.known_as(), key);
        match self.standing_as(host.host(), key) {
            revoked @ Standing::Revoked { .. } => revoked,
            Standing::Known if standing == Standing::Unknown => Standing::Known,
            _ => standing,
        }
    }

    fn standing_as(&self, name: &str, key: &PublicKey) -> Standing {
        let (mut known, mut other) = (false, None);
        for (place, entry) in self.of(name) {
            let same = entry.public_key().key_data() == key.key_data();
            match (entry.marker(), same) {
                (Some(Marker::Revoked), true) => {
                    return Standing::Revoked { place: place.clone() };
                }
                (None, true) => known = true,
                (None, false) if other.is_none() => other = Some((place, entry.public_key())),
                (None | Some(Marker::Revoked | Marker::CertAuthority), _) => {}
            }
        }
        match (known, other) {
            (true, _) => Standing::Known,
            (false, Some((place, key))) => {
                Standing::Changed { known: Box::new(key.clone()), place: place.clone() }
            }
            (false, None) => Standing::Unknown,
        }
    }

    /// The key types that are known for a host. The client requests one of them.
    pub(crate) fn algorithms(&self, host: &HostPort) -> Vec<Algorithm> {
        let name = host.known_as();
        let entries = self.of(&name).filter(|(_, entry)| entry.marker().is_none());
        entries.map(|(_, entry)| entry.public_key().algorithm()).collect()
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &(Place, Entry)> {
        self.0.iter().filter(move |(_, entry)| matches(entry.host_patterns(), name))
    }
}

/// Adds a key, unless another process has already added a key for this host. Returns what is now
/// known about the key.
pub(crate) fn learn(path: &Path, host: &HostPort, key: &PublicKey) -> io::Result<Standing> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(directory)?;
    }
    match refuse_special(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    // Two processes that connect to a host for the first time must not store different keys.
    file.lock()?;
    let text = limited(&file)?;
    let mut lines = Lines::default();
    lines.add(Some(path), &text);
    let standing = lines.standing(host, key);
    if standing != Standing::Unknown {
        return Ok(standing);
    }
    let start = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    file.write_all(format!("{start}{}\n", line(host, key)).as_bytes())?;
    file.sync_all()?;
    Ok(Standing::Known)
}

/// The line of a `known_hosts` file that lists a key.
pub(crate) fn line(host: &HostPort, key: &PublicKey) -> String {
    let key = PublicKey::new(key.key_data().clone(), "");
    format!("{} {}", host.known_as(), key.to_openssh().unwrap_or_default())
}

fn read(path: &Path) -> io::Result<String> {
    refuse_special(path)?;
    limited(&File::open(path)?)
}

/// Refuses pipes and devices, because reading them may block or never end.
fn refuse_special(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() || kind.is_dir() || path == Path::new("/dev/null") {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

fn limited(file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    // A comment may have any encoding.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn matches(patterns: &HostPatterns, name: &str) -> bool {
    match patterns {
        HostPatterns::HashedName { salt, hash } => {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
            hmac::verify(&key, name.as_bytes(), hash).is_ok()
        }
        HostPatterns::Patterns(patterns) => {
            let mut matched = false;
            for pattern in patterns {
                let pattern = pattern.to_ascii_lowercase();
                match pattern.strip_prefix('!') {
                    Some(pattern) if fits(pattern.as_bytes(), name.as_bytes()) => return false,
                    Some(_) => {}
                    None => matched |= fits(pattern.as_bytes(), name.as_bytes()),
                }
            }
            matched
        }
    }
}

/// Whether a name matches a pattern with `*` and `?`. The number of steps is at most the product of
/// the two lengths.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // The position of the last star, and the end of the text that it has matched so far.
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => match star {
                Some((place, end)) => {
                    star = Some((place, end + 1));
                    at = place + 1;
                    in_name = end + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const TWO: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";

    fn key(text: &str) -> PublicKey {
        PublicKey::from_openssh(text).unwrap()
    }

    fn standing(text: &str, host: &str, port: u16) -> Standing {
        let lines = KnownHosts::from_text(text).load().unwrap();
        lines.standing(&HostPort::new(host, port), &key(ONE))
    }

    #[test]
    fn names_patterns_and_ports() {
        for (hosts, host, port, known) in [
            ("box", "box", 22, true),
            ("box", "BOX", 22, true),
            ("Box", "box", 22, true),
            ("box", "boxer", 22, false),
            ("a,box,b", "box", 22, true),
            ("[box]:2222", "box", 2222, true),
            ("[box]:2222", "box", 22, false),
            ("[box]:2222", "box", 2223, false),
            // OpenSSH also accepts a key that is known for the default port of the host.
            ("box", "box", 2222, true),
            ("*.example", "a.example", 22, true),
            ("*.example", "example", 22, false),
            ("b?x", "box", 22, true),
            ("*", "box", 22, true),
            ("*,!box", "box", 22, false),
            ("[*]:2222", "box", 2222, true),
            ("::1", "::1", 22, true),
            ("[::1]:23", "::1", 23, true),
        ] {
            let expect = if known { Standing::Known } else { Standing::Unknown };
            assert_eq!(standing(&format!("{hosts} {ONE} me@home"), host, port), expect, "{hosts}");
        }
    }

    #[test]
    fn hashed_names() {
        // Created with `ssh-keygen -H` of OpenSSH.
        let line = format!("|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak= {ONE}");
        assert_eq!(standing(&line, "example.com", 22), Standing::Known);
        assert_eq!(standing(&line, "example.org", 22), Standing::Unknown);
    }

    #[test]
    fn one_of_several_keys_is_enough_and_others_are_a_change() {
        let both = format!("box {TWO}\n# a comment\n\nbox\t{ONE}\n");
        assert_eq!(standing(&both, "box", 22), Standing::Known);
        let other = format!("gibberish\n\nbox {TWO}\n");
        let place = Place { file: None, line: 3 };
        let changed = Standing::Changed { known: Box::new(key(TWO)), place };
        assert_eq!(standing(&other, "box", 22), changed);
        assert_eq!(standing(&other, "fox", 22), Standing::Unknown);
        assert_eq!(standing("", "box", 22), Standing::Unknown);
    }

    #[test]
    fn revoked_keys_are_refused_wherever_else_they_are_known() {
        let text = format!("box {ONE}\n@revoked * {ONE}\n@cert-authority * {TWO}\n");
        let revoked = Standing::Revoked { place: Place { file: None, line: 2 } };
        assert_eq!(standing(&text, "box", 22), revoked);
        let others = format!("@revoked * {TWO}\n@cert-authority box {ONE}\n");
        assert_eq!(standing(&others, "box", 22), Standing::Unknown);
    }

    #[test]
    fn types_of_keys_are_those_of_the_host() {
        let lines = KnownHosts::from_text(format!("box {ONE}\nfox {TWO}\n")).load().unwrap();
        assert_eq!(lines.algorithms(&HostPort::new("box", 22)), [Algorithm::Ed25519]);
        assert_eq!(lines.algorithms(&HostPort::new("cat", 22)), []);
    }

    #[test]
    fn a_key_is_learned_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/known");
        let host = HostPort::new("box", 2222);
        assert_eq!(learn(&path, &host, &key(ONE)).unwrap(), Standing::Known);
        assert_eq!(learn(&path, &host, &key(ONE)).unwrap(), Standing::Known);
        let changed = learn(&path, &host, &key(TWO)).unwrap();
        assert!(matches!(changed, Standing::Changed { .. }), "{changed:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("[box]:2222 {ONE}\n"));
        fs::write(&path, "# no end of line").unwrap();
        learn(&path, &host, &key(TWO)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("# no end of line\n[box]:2222 {TWO}\n"));
    }

    #[test]
    fn files_that_are_missing_are_empty_and_others_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        fs::write(&path, [b"# \xff\n", format!("box {ONE}\n").as_bytes()].concat()).unwrap();
        let known = KnownHosts::from_files([directory.path().join("missing"), path]);
        let host = HostPort::new("box", 22);
        assert_eq!(known.load().unwrap().standing(&host, &key(ONE)), Standing::Known);
        let wrong = KnownHosts::from_files([directory.path()]).load().unwrap_err();
        assert!(wrong.to_string().starts_with("read "), "{wrong}");
        assert!(KnownHosts::from_files(["/dev/null"]).load().unwrap().0.is_empty());
        // The pipe has no writer. Loading it must not block.
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let wrong = KnownHosts::from_files([&pipe]).load().unwrap_err();
        assert!(wrong.to_string().ends_with("it is not a regular file"), "{wrong}");
        let wrong = learn(&pipe, &host, &key(ONE)).unwrap_err();
        assert!(wrong.to_string().ends_with("it is not a regular file"), "{wrong}");
    }
}
