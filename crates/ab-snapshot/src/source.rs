//! The location of a repository: a directory of this host, or a URL.

use std::fmt;
use std::path::{Path, PathBuf};

use ab_core::ErrorKind;
use sha2::{Digest, Sha256};

use crate::error::{GitTaskField, Result, SnapshotError};

const LONGEST: usize = 4096;
/// The allowed URL schemes. With other schemes, a URL can make git run a program that it names.
const SCHEMES: &[&str] = &["https", "http", "ssh", "git"];

/// A repository that a task names. The `Display` output contains no passwords.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum RepoSource {
    /// An absolute path. Only callers on this host may name a path. The caller of this crate must
    /// check this, because this crate does not.
    Local(PathBuf),
    /// A URL with a scheme that git knows, or `user@host:path`.
    Remote(String),
}

impl RepoSource {
    /// Parses `repo.url`: an absolute path, a `file://` URL, another URL, or `user@host:path`.
    pub fn parse(text: &str) -> Result<RepoSource> {
        let refused = |problem: &str| {
            let message = format!("invalid repository {:?}: {problem}", redacted(text));
            SnapshotError::field(GitTaskField::RepoUrl, ErrorKind::Invalid, message)
        };
        if text.is_empty() || text.len() > LONGEST {
            return Err(refused("must have 1 to 4096 bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err(refused("it contains a control character"));
        }
        let path = text.strip_prefix("file://").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(RepoSource::Local(PathBuf::from(path)));
        }
        let host = match text.split_once("://") {
            Some((scheme, rest)) if SCHEMES.contains(&scheme) => {
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                authority.rsplit('@').next().unwrap_or_default()
            }
            Some(_) => return Err(refused("the scheme must be https, http, ssh, git or file")),
            None => match text.split_once(':') {
                // The condition rejects URLs such as `ext::command`, because they make git run a
                // program.
                Some((before, after)) if !after.starts_with(':') && !before.contains('/') => {
                    before.rsplit('@').next().unwrap_or_default()
                }
                _ => return Err(refused("must be an absolute path or a URL")),
            },
        };
        if host.is_empty() || host.starts_with('-') || text.starts_with('-') {
            return Err(refused("the host is missing or begins with -"));
        }
        Ok(RepoSource::Remote(text.to_owned()))
    }

    /// Returns the source as an argument for git.
    pub(crate) fn argument(&self) -> std::ffi::OsString {
        match self {
            RepoSource::Local(path) => path.clone().into_os_string(),
            RepoSource::Remote(url) => url.into(),
        }
    }

    /// Returns the name of the source's cache.
    pub(crate) fn key(&self) -> String {
        let text = match self {
            RepoSource::Local(path) => path.as_os_str().as_encoded_bytes(),
            RepoSource::Remote(url) => url.as_bytes(),
        };
        let kind: &[u8] = match self {
            RepoSource::Local(_) => b"local\0",
            RepoSource::Remote(_) => b"remote\0",
        };
        let digest = Sha256::new().chain_update(kind).chain_update(text).finalize();
        digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the name of a separate cache for objects that were fetched without credentials.
    pub(crate) fn anonymous_key(&self) -> String {
        match self {
            RepoSource::Local(_) => self.key(),
            RepoSource::Remote(url) => RepoSource::Remote(format!("anonymous {url}")).key(),
        }
    }

    /// Whether the source is an HTTP URL, which git can read without credentials of this host.
    pub fn is_http(&self) -> bool {
        let schemes = ["https://", "http://"];
        matches!(self, RepoSource::Remote(url) if schemes.iter().any(|it| url.starts_with(it)))
    }

    pub fn local_path(&self) -> Option<&Path> {
        match self {
            RepoSource::Local(path) => Some(path),
            RepoSource::Remote(_) => None,
        }
    }
}

impl fmt::Display for RepoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepoSource::Local(path) => write!(f, "{}", path.display()),
            RepoSource::Remote(url) => f.write_str(&redacted(url)),
        }
    }
}

impl fmt::Debug for RepoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RepoSource({self})")
    }
}

/// Returns the URL without its password or token.
pub(crate) fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        // If there is no colon, the user name itself may be the token.
        Some((_, host)) if scheme != "ssh" => format!("{scheme}://***@{host}{path}"),
        Some((user, host)) => {
            let name = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{name}@{host}{path}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_are_told_apart() {
        for text in ["/srv/repo", "file:///srv/repo"] {
            let source = RepoSource::parse(text).unwrap();
            assert_eq!(source.local_path(), Some(Path::new("/srv/repo")), "{text}");
        }
        for text in [
            "https://example.org/a.git",
            "ssh://git@example.org:22/a",
            "git@example.org:a/b.git",
            "host:a",
        ] {
            assert_eq!(RepoSource::parse(text).unwrap(), RepoSource::Remote(text.to_owned()));
        }
    }

    #[test]
    fn sources_that_could_run_something_are_refused() {
        for text in [
            "",
            "relative",
            "./a",
            "a/b:c",
            "ext::sh -c id",
            "ext::x",
            "fd::3",
            "-oProxyCommand=x:a",
            "ssh://-oProxyCommand=x/a",
            "git@-oProxyCommand=x:a",
            "https:///a",
            "ftp://host/a",
            "ext://x",
            "https://host/a\nb",
            "file://relative",
        ] {
            let error = RepoSource::parse(text).unwrap_err();
            assert_eq!(error.field, Some(GitTaskField::RepoUrl), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("https://user:secret@host/a", "https://***@host/a"),
            ("https://secret@host/a", "https://***@host/a"),
            ("https://host/a@b", "https://host/a@b"),
            ("ssh://git:secret@host/a", "ssh://git@host/a"),
        ] {
            let source = RepoSource::parse(text).unwrap();
            assert_eq!(source.to_string(), shown);
            assert!(!format!("{source:?}").contains("secret"));
        }
        let error = RepoSource::parse("ftp://user:secret@host/a").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn sources_have_caches_of_their_own() {
        let keys = ["/srv/a", "/srv/b", "https://srv/a", "https://srv/b"];
        let keys = keys.map(|text| RepoSource::parse(text).unwrap().key());
        assert!(keys.iter().all(|key| key.len() == 32));
        assert_eq!(std::collections::BTreeSet::from(keys).len(), 4);
    }
}
