//! Workspace paths. A text is parsed once into a [`WsPath`], in the outermost layer.
//!
//! Parsing is lexical. Drivers resolve links, and ensure that the result is below the root of the
//! workspace. If the path came through a scope, the result must be below the *scope root* of the
//! path.

mod access;
mod input;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use access::{AccessRules, AccessRulesBelowPrefix, HiddenByFilter};
pub use input::PathInput;

use crate::error::{Error, ErrorCode, ErrorKind, Result};

/// Maximum length of a path in bytes. The kernel has the same limit (`PATH_MAX` without the closing
/// NUL).
pub const MAX_PATH_BYTES: usize = 4095;
/// Maximum length of a segment in bytes.
pub const MAX_PATH_SEGMENT_BYTES: usize = 255;
/// Maximum length of a path in characters under [`PathStrictness::Strict`].
pub(crate) const MAX_STRICT_MODE_PATH_CHARS: usize = 255;
/// The name prefix of temporary files. Names with this prefix are never listed, and are not
/// accepted from callers.
pub const TEMP_FILE_PREFIX: &str = ".ab-tmp-";
/// The name prefix of an overlay's whiteouts in its upper layer. Names with this prefix are listed
/// in the upper layer, but are not accepted from callers.
pub(crate) const OVERLAY_WHITEOUT_PREFIX: &str = ".ab-wh-";
/// The name of the file that represents an empty directory in an upper layer that does not support
/// empty directories.
pub(crate) const EMPTY_DIR_MARKER_NAME: &str = ".ab-keep";

/// A parsed path. It is UTF-8, separated by `/`, and relative to the root of the workspace.
///
/// - It has no segment that is `.`, `..` or empty, no NUL, and no segment longer than
///   [`MAX_PATH_SEGMENT_BYTES`].
/// - The root is the empty path and is printed as `.`.
/// - Only [`PathParser`] creates a path from a caller's text.
/// - A path may contain *scope roots*. These are prefixes of the path. There is one for each scope
///   through which the path came, the outermost first. Links must not lead out of them. Paths are
///   equal if they name the same place, even if their scope roots differ.
/// - A path may contain *access rules*: the hidden and read-only paths of the restricted handles
///   through which the path came. The rules do not affect equality either.
#[derive(Clone, Default)]
pub struct WsPath {
    text: String,
    /// The ends of the scope roots as byte offsets, in ascending order.
    scope_root_ends: Vec<usize>,
    rules: Option<Arc<AccessRules>>,
}

/// A path split at its scope roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopedPathParts<'a> {
    /// The scopes. The first scope must be resolved below the root, and every other scope below the
    /// result of the previous scope.
    pub scopes: Vec<&'a str>,
    /// The rest of the path, which is resolved below the last scope root. It is empty only for the
    /// root of the workspace, because a scope root at the end of a path is not split off.
    pub rest: &'a str,
}

impl WsPath {
    /// The workspace root.
    pub fn root() -> Self {
        Self::default()
    }

    /// The path as text. Empty for the root.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_root(&self) -> bool {
        self.text.is_empty()
    }

    /// The segments from the root down.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.text.split('/').filter(|segment| !segment.is_empty())
    }

    /// The last segment. `None` for the root.
    pub fn name(&self) -> Option<&str> {
        let start = self.text.rfind('/').map_or(0, |slash| slash + 1);
        (!self.is_root()).then(|| &self.text[start..])
    }

    /// The path without its last segment. `None` for the root.
    pub fn parent(&self) -> Option<WsPath> {
        if self.is_root() {
            return None;
        }
        let end = self.text.rfind('/').unwrap_or(0);
        let scope_root_ends =
            self.scope_root_ends.iter().copied().filter(|root_end| *root_end <= end).collect();
        Some(WsPath {
            text: self.text[..end].to_owned(),
            scope_root_ends,
            rules: self.rules_above(end),
        })
    }

    /// Appends `below`. The scope roots and rules of both apply.
    pub fn join(&self, below: &WsPath) -> WsPath {
        let rules = self.rules_joined(below);
        if below.is_root() {
            return WsPath { rules, ..self.clone() };
        }
        let offset = if self.is_root() { 0 } else { self.text.len() + 1 };
        let mut text = String::with_capacity(offset + below.text.len());
        if offset > 0 {
            text.push_str(&self.text);
            text.push('/');
        }
        text.push_str(&below.text);
        let mut scope_root_ends = self.scope_root_ends.clone();
        scope_root_ends.extend(below.scope_root_ends.iter().map(|root_end| offset + root_end));
        WsPath { text, scope_root_ends, rules }
    }

    /// Appends one segment. Fails if `name` is not a single plain segment.
    pub fn child(&self, name: &str) -> Result<WsPath> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(invalid(name, "not a single path segment"));
        }
        check_name(name, name)?;
        Ok(self.with_name(name))
    }

    /// Appends a segment that comes from another path. It is not checked again.
    pub(crate) fn with_name(&self, name: &str) -> WsPath {
        let mut text = String::with_capacity(self.text.len() + 1 + name.len());
        if !self.is_root() {
            text.push_str(&self.text);
            text.push('/');
        }
        text.push_str(name);
        WsPath { text, scope_root_ends: self.scope_root_ends.clone(), rules: self.rules.clone() }
    }

    /// Appends segments that come from another path. They are not checked again.
    pub fn join_unchecked(&self, text: &str) -> WsPath {
        if text.is_empty() { self.clone() } else { self.with_name(text) }
    }

    /// Returns the last segment, in the memory of the path. Empty for the root.
    pub(crate) fn into_name(self) -> String {
        let mut name = self.text;
        let start = name.rfind('/').map_or(0, |slash| slash + 1);
        name.drain(..start);
        name
    }

    /// The number of segments.
    pub(crate) fn depth(&self) -> usize {
        if self.is_root() { 0 } else { 1 + self.text.bytes().filter(|byte| *byte == b'/').count() }
    }

    /// The rest of the path below `base`. `None` if the path is not below it.
    pub fn strip_prefix(&self, base: &WsPath) -> Option<WsPath> {
        if base.is_root() {
            return Some(self.clone());
        }
        let rest = self.text.strip_prefix(base.as_str())?;
        if rest.is_empty() {
            return Some(WsPath { rules: self.rules_inside(&base.text), ..WsPath::root() });
        }
        let rest = rest.strip_prefix('/')?;
        let above = base.text.len() + 1;
        let scope_root_ends =
            self.scope_root_ends.iter().filter_map(|root_end| root_end.checked_sub(above));
        let scope_root_ends = scope_root_ends.filter(|root_end| *root_end > 0).collect();
        Some(WsPath {
            text: rest.to_owned(),
            scope_root_ends,
            rules: self.rules_inside(&base.text),
        })
    }

    /// Whether this path is `base` or below it. Whole segments are compared.
    pub fn starts_with(&self, base: &WsPath) -> bool {
        match self.text.strip_prefix(base.as_str()) {
            Some(rest) => base.is_root() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }

    /// Adds a scope root at the end of the path. Links below the scope root must not lead out of
    /// it.
    pub fn into_scope_root(mut self) -> WsPath {
        let end = self.text.len();
        if end > 0 && self.scope_root_ends.last() != Some(&end) {
            self.scope_root_ends.push(end);
        }
        self
    }

    /// The innermost scope root as a path, including its own scope roots. If there is no scope
    /// root, the root.
    pub fn innermost_scope_root(&self) -> WsPath {
        let end = self.innermost_scope_root_end();
        let (scope_root_ends, rules) = (self.scope_root_ends.clone(), self.rules_above(end));
        WsPath { text: self.text[..end].to_owned(), scope_root_ends, rules }
    }

    pub fn has_scope_root(&self) -> bool {
        !self.scope_root_ends.is_empty()
    }

    /// The part of the path below its innermost scope root. Empty if the path ends there.
    pub fn part_below_scope_root(&self) -> &str {
        self.text[self.innermost_scope_root_end()..].trim_start_matches('/')
    }

    /// The parts of the path that end at scope roots, each relative to the previous part. The rest
    /// of the path is [`part_below_scope_root`](Self::part_below_scope_root).
    pub fn scope_root_parts(&self) -> Vec<&str> {
        let mut start = 0;
        let part = |end: &usize| {
            let part = self.text[start..*end].trim_start_matches('/');
            start = *end;
            part
        };
        self.scope_root_ends.iter().map(part).collect()
    }

    /// Splits the path into parts. Each part must be resolved below the result of the previous
    /// part.
    pub fn split_at_scope_roots(&self) -> ScopedPathParts<'_> {
        let mut start = 0;
        let mut scope_roots = Vec::with_capacity(self.scope_root_ends.len());
        for end in &self.scope_root_ends {
            scope_roots.push(self.text[start..*end].trim_start_matches('/'));
            start = *end;
        }
        match (self.text[start..].trim_start_matches('/'), scope_roots.pop()) {
            ("", Some(last)) => ScopedPathParts { scopes: scope_roots, rest: last },
            (rest, last) => {
                scope_roots.extend(last);
                ScopedPathParts { scopes: scope_roots, rest }
            }
        }
    }

    fn innermost_scope_root_end(&self) -> usize {
        self.scope_root_ends.last().copied().unwrap_or(0)
    }

    /// Creates a path from the text of another path. The text is not checked again.
    pub(crate) fn from_key(key: &str) -> WsPath {
        WsPath { text: key.to_owned(), ..WsPath::default() }
    }

    fn from_segments(segments: &[&str]) -> WsPath {
        WsPath { text: segments.join("/"), ..WsPath::default() }
    }
}

impl PartialEq for WsPath {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for WsPath {}

impl PartialOrd for WsPath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WsPath {
    /// Compares segment by segment, so that the entries of a directory directly follow the
    /// directory.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.segments().cmp(other.segments())
    }
}

impl Hash for WsPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for WsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { &self.text })
    }
}

impl fmt::Debug for WsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// How strictly a text is parsed as a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathStrictness {
    /// Absolute paths are relative to the root, inner `..` segments are resolved, and paths that
    /// lead outside are refused.
    #[default]
    Lenient,
    /// Only relative paths without `..`, with at most 255 characters. Used by the operations
    /// protocol (`docs/protocol.md`).
    Strict,
}

/// The platform whose rules for separators, drives and reserved names apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    Unix,
    Windows,
}

/// Parses a text from a caller into a [`WsPath`].
///
/// A *root alias* is an absolute path of the workspace's root, such as the directory on the host or
/// its mount point in a sandbox. An absolute path below an alias is relative to this alias. Other
/// absolute paths are relative to the root of the workspace.
#[derive(Clone, Debug)]
pub struct PathParser {
    style: PathStrictness,
    platform: Platform,
    aliases: Vec<Vec<String>>,
    reserved: Reserved,
}

/// Whether the names that are reserved for views are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reserved {
    #[default]
    Refused,
    Allowed,
}

impl PathParser {
    pub fn lenient() -> Self {
        Self {
            style: PathStrictness::Lenient,
            platform: Platform::Unix,
            aliases: Vec::new(),
            reserved: Reserved::Refused,
        }
    }

    pub fn strict() -> Self {
        Self { style: PathStrictness::Strict, ..Self::lenient() }
    }

    /// The same parser in strict mode.
    pub(crate) fn into_strict(mut self) -> Self {
        self.style = PathStrictness::Strict;
        self
    }

    pub fn for_platform(mut self, platform: Platform) -> Self {
        self.platform = platform;
        self
    }

    /// Accepts reserved names too. Used for texts that come from a [`WsPath`] in another process.
    pub fn allow_reserved_names(mut self) -> Self {
        self.reserved = Reserved::Allowed;
        self
    }

    /// Adds an absolute path of the root. A text that is not an absolute path is ignored.
    pub fn with_root_alias(mut self, alias: &str) -> Self {
        let text = match self.platform {
            Platform::Unix => alias.to_owned(),
            Platform::Windows => alias.replace('\\', "/"),
        };
        let absolute = text.starts_with('/') || has_drive(&text);
        let segments: Vec<String> =
            text.split('/').filter(|s| !s.is_empty() && *s != ".").map(str::to_owned).collect();
        if absolute && !segments.iter().any(|s| s == "..") && !self.aliases.contains(&segments) {
            self.aliases.push(segments);
        }
        self
    }

    /// Returns the parser for paths in a scope. The path of the scope is appended to every root
    /// alias.
    pub fn for_scope(&self, scope: &WsPath) -> Self {
        let mut rules = self.clone();
        for alias in &mut rules.aliases {
            alias.extend(scope.segments().map(str::to_owned));
        }
        rules
    }

    /// Parses a path. Errors contain the text as the caller wrote it.
    pub fn parse(&self, raw: &str) -> Result<WsPath> {
        if raw.is_empty() {
            return Err(invalid(raw, "the path is empty")
                .with_hint("use '.' for the root of the workspace"));
        }
        if raw.len() > MAX_PATH_BYTES {
            return Err(invalid(raw, format!("longer than {MAX_PATH_BYTES} bytes")));
        }
        if raw.contains('\0') {
            return Err(invalid(raw, "contains a NUL byte"));
        }
        match (self.style, self.platform) {
            (PathStrictness::Strict, _) => self.parse_strict(raw),
            (PathStrictness::Lenient, Platform::Unix) => self.parse_lenient(raw, raw),
            (PathStrictness::Lenient, Platform::Windows) => self.parse_windows(raw),
        }
    }

    /// Parses bytes that may not be UTF-8.
    pub fn parse_bytes(&self, raw: &[u8]) -> Result<WsPath> {
        match std::str::from_utf8(raw) {
            Ok(text) => self.parse(text),
            Err(_) => Err(invalid(&String::from_utf8_lossy(raw), "not valid UTF-8")),
        }
    }

    fn parse_lenient(&self, raw: &str, text: &str) -> Result<WsPath> {
        self.parse_from(raw, None, text)
    }

    /// Parses `text`. `drive` is the Windows drive that was removed from its beginning, if there
    /// was one. The drive is compared only with the drives of root aliases.
    fn parse_from(&self, raw: &str, drive: Option<&str>, text: &str) -> Result<WsPath> {
        let absolute = text.starts_with('/');
        let mut segments: Vec<&str> = Vec::new();
        let mut climbed_out_of_root = false;
        for segment in text.split('/') {
            match segment {
                "" | "." => {}
                ".." => {
                    climbed_out_of_root |=
                        absolute && self.alias_length(drive, &segments) == Some(segments.len());
                    if segments.pop().is_none() {
                        return Err(escape(raw));
                    }
                }
                name => {
                    self.check_segment(name, raw)?;
                    segments.push(name);
                }
            }
        }
        if absolute && let Some(length) = self.alias_length(drive, &segments) {
            return Ok(WsPath::from_segments(&segments[length..]));
        }
        if climbed_out_of_root {
            return Err(escape(raw));
        }
        Ok(WsPath::from_segments(&segments))
    }

    fn parse_windows(&self, raw: &str) -> Result<WsPath> {
        let text = raw.replace('\\', "/");
        let text = text.strip_prefix("//?/").unwrap_or(&text);
        if has_drive(text) {
            let (drive, rest) = text.split_at(2);
            if !rest.starts_with('/') {
                return Err(invalid(raw, "a drive letter without a separator is ambiguous")
                    .with_hint("write a relative path, or the drive followed by a separator"));
            }
            return self.parse_from(raw, Some(drive), rest);
        }
        if let Some(share) = text.strip_prefix("//") {
            let rest = share.splitn(3, '/').nth(2).unwrap_or("");
            return self.parse_lenient(raw, &format!("/{rest}"));
        }
        self.parse_lenient(raw, text)
    }

    fn parse_strict(&self, raw: &str) -> Result<WsPath> {
        if raw.starts_with('/') {
            return Err(invalid(raw, "must be relative"));
        }
        if raw.contains("..") {
            return Err(escape(raw));
        }
        if raw.chars().count() > MAX_STRICT_MODE_PATH_CHARS {
            return Err(invalid(
                raw,
                format!("longer than {MAX_STRICT_MODE_PATH_CHARS} characters"),
            ));
        }
        let path = self.parse_lenient(raw, raw)?;
        // Check the result, because a leading `./` could hide a drive.
        if raw.contains('\\') || has_drive(path.as_str()) {
            return Err(invalid(raw, "drives and backslashes are not allowed"));
        }
        Ok(path)
    }

    fn check_segment(&self, name: &str, raw: &str) -> Result<()> {
        check_length(name, raw)?;
        if self.reserved == Reserved::Refused {
            check_reserved(name, raw)?;
            if is_mark(name) {
                return Err(invalid(raw, "the name is reserved for overlays"));
            }
        }
        if self.platform == Platform::Windows {
            check_windows_name(name, raw)?;
        }
        Ok(())
    }

    /// The part of an absolute path below the root of the workspace. `None` if no root alias is a
    /// prefix of the path.
    pub(crate) fn below_root_alias<'s, 't>(
        &self,
        segments: &'s [&'t str],
    ) -> Option<&'s [&'t str]> {
        Some(&segments[self.alias_length(None, segments)?..])
    }

    /// How many of `segments` belong to the longest matching alias.
    fn alias_length(&self, drive: Option<&str>, segments: &[&str]) -> Option<usize> {
        let same = |a: &str, b: &str| match self.platform {
            Platform::Unix => a == b,
            Platform::Windows => a.eq_ignore_ascii_case(b),
        };
        let covered = |alias: &Vec<String>| {
            let length = alias.len().checked_sub(drive.iter().len())?;
            let whole = drive.iter().chain(segments.get(..length)?);
            alias.iter().zip(whole).all(|(a, b)| same(a, b)).then_some(length)
        };
        self.aliases.iter().filter_map(covered).max()
    }
}

/// Whether an overlay uses this name for files that hide a path or keep a directory in existence.
/// For drivers this name has no special meaning.
pub(crate) fn is_mark(name: &str) -> bool {
    name.starts_with(OVERLAY_WHITEOUT_PREFIX) || name == EMPTY_DIR_MARKER_NAME
}

fn check_name(name: &str, raw: &str) -> Result<()> {
    check_length(name, raw)?;
    check_reserved(name, raw)
}

fn check_length(name: &str, raw: &str) -> Result<()> {
    if name.len() > MAX_PATH_SEGMENT_BYTES {
        return Err(invalid(
            raw,
            format!("a segment is longer than {MAX_PATH_SEGMENT_BYTES} bytes"),
        ));
    }
    Ok(())
}

fn check_reserved(name: &str, raw: &str) -> Result<()> {
    if name.starts_with(TEMP_FILE_PREFIX) {
        return Err(invalid(
            raw,
            format!("names that start with '{TEMP_FILE_PREFIX}' are reserved for temporary files"),
        ));
    }
    Ok(())
}

fn check_windows_name(name: &str, raw: &str) -> Result<()> {
    if name.contains([':', '*', '?', '"', '<', '>', '|']) {
        return Err(invalid(raw, "a path segment contains a character that Windows reserves"));
    }
    if name.ends_with(['.', ' ']) {
        return Err(invalid(raw, "a segment ends in a dot or a space, which Windows drops"));
    }
    let stem = name.split('.').next().unwrap_or(name).to_ascii_uppercase();
    let numbered = |base: &str| {
        stem.strip_prefix(base).is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit())
    };
    if matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
    {
        return Err(invalid(raw, "a segment is a device name on Windows"));
    }
    Ok(())
}

fn has_drive(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':'
}

fn invalid(raw: &str, reason: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidPath, ErrorKind::InvalidPath, reason).with_path(raw)
}

fn escape(raw: &str) -> Error {
    Error::new(ErrorCode::PathEscapeAttempt, ErrorKind::PathEscape, "the path leaves the workspace")
        .with_path(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(rules: &PathParser, raw: &str) -> String {
        match rules.parse(raw) {
            Ok(path) => path.to_string(),
            Err(error) => error.code().to_string(),
        }
    }

    #[test]
    fn lenient_follows_the_three_cases() {
        let rules = PathParser::lenient().with_root_alias("/var/workspace");
        for (raw, expect) in [
            ("file.txt", "file.txt"),
            ("sub/f", "sub/f"),
            (".", "."),
            ("./a/./b//c/", "a/b/c"),
            ("a/../b", "b"),
            ("a..b", "a..b"),
            ("...", "..."),
            ("trailing ", "trailing "),
            ("trailing.", "trailing."),
            ("/var/workspace", "."),
            ("/var/workspace/file.txt", "file.txt"),
            ("//var//workspace/./a/b/c", "a/b/c"),
            ("/var/other/../workspace/a", "a"),
            ("/file.txt", "file.txt"),
            ("/etc/passwd", "etc/passwd"),
            ("/", "."),
            ("/var/workspace-evil/x", "var/workspace-evil/x"),
            ("/var", "var"),
            ("../etc/passwd", "PATH_ESCAPE_ATTEMPT"),
            ("../../..", "PATH_ESCAPE_ATTEMPT"),
            ("a/b/../../../../etc", "PATH_ESCAPE_ATTEMPT"),
            ("/..", "PATH_ESCAPE_ATTEMPT"),
            ("/var/workspace/../x", "PATH_ESCAPE_ATTEMPT"),
            ("/var/workspace/../../etc", "PATH_ESCAPE_ATTEMPT"),
            ("", "INVALID_PATH"),
            ("a\0b", "INVALID_PATH"),
            (".ab-tmp-1", "INVALID_PATH"),
            ("a/.ab-tmp-1/b", "INVALID_PATH"),
        ] {
            assert_eq!(shown(&rules, raw), expect, "{raw:?}");
        }
    }

    #[test]
    fn windows_shapes_have_a_decided_result() {
        let unix = PathParser::lenient();
        let windows =
            PathParser::lenient().for_platform(Platform::Windows).with_root_alias("C:\\ws");
        let strict = PathParser::strict();
        let strict_windows = PathParser::strict().for_platform(Platform::Windows);
        for (raw, on_unix, on_windows, on_strict) in [
            ("C:\\x", "C:\\x", "x", "INVALID_PATH"),
            ("C:x", "C:x", "INVALID_PATH", "INVALID_PATH"),
            ("\\\\srv\\s\\x", "\\\\srv\\s\\x", "x", "INVALID_PATH"),
            ("a\\b", "a\\b", "a/b", "INVALID_PATH"),
            ("C:\\ws\\x", "C:\\ws\\x", "x", "INVALID_PATH"),
            ("c:/WS/x", "c:/WS/x", "x", "INVALID_PATH"),
            ("a\\..\\..\\b", "a\\..\\..\\b", "PATH_ESCAPE_ATTEMPT", "PATH_ESCAPE_ATTEMPT"),
            ("nul.txt", "nul.txt", "INVALID_PATH", "nul.txt"),
            ("a:stream", "a:stream", "INVALID_PATH", "INVALID_PATH"),
            ("dot.", "dot.", "INVALID_PATH", "dot."),
        ] {
            assert_eq!(shown(&unix, raw), on_unix, "{raw:?} lenient on unix");
            assert_eq!(shown(&windows, raw), on_windows, "{raw:?} lenient on windows");
            assert_eq!(shown(&strict, raw), on_strict, "{raw:?} strict on unix");
            let expect = if on_windows.starts_with("INVALID") { on_windows } else { on_strict };
            assert_eq!(shown(&strict_windows, raw), expect, "{raw:?} strict on windows");
        }
    }

    #[test]
    fn strict_follows_the_operations_protocol() {
        let long = "x".repeat(256);
        let longest = format!("{}/{}", "x".repeat(127), "y".repeat(127));
        for (raw, expect) in [
            ("src/app.ts", "src/app.ts"),
            ("./src//app.ts", "src/app.ts"),
            (longest.as_str(), longest.as_str()),
            ("/src/app.ts", "INVALID_PATH"),
            ("a..b", "PATH_ESCAPE_ATTEMPT"),
            ("a/../b", "PATH_ESCAPE_ATTEMPT"),
            ("", "INVALID_PATH"),
            ("a\0", "INVALID_PATH"),
            (long.as_str(), "INVALID_PATH"),
        ] {
            assert_eq!(shown(&PathParser::strict(), raw), expect, "{raw:?}");
        }
    }

    #[test]
    fn lengths_and_encodings_are_bounded() {
        let rules = PathParser::lenient();
        assert_eq!(shown(&rules, &"a".repeat(255)), "a".repeat(255));
        assert_eq!(shown(&rules, &"a".repeat(256)), "INVALID_PATH");
        assert_eq!(shown(&rules, &"a/".repeat(2048)), "INVALID_PATH");
        let error = rules.parse_bytes(b"caf\xe9").unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidPath);
        assert_eq!(error.path(), Some("caf\u{fffd}"));
    }

    #[test]
    fn a_scope_moves_the_aliases_down() {
        let rules = PathParser::lenient().with_root_alias("/w");
        let scope = rules.parse("users/user1").unwrap();
        let scoped = rules.for_scope(&scope);
        for raw in ["file.txt", "/file.txt", "/w/users/user1/file.txt"] {
            assert_eq!(shown(&scoped, raw), "file.txt", "{raw:?}");
        }
        assert_eq!(shown(&scoped, "../user2/secret"), "PATH_ESCAPE_ATTEMPT");
        assert_eq!(shown(&scoped, "/w/users/user2/x"), "w/users/user2/x");
    }

    #[test]
    fn a_path_has_a_depth_and_a_name() {
        for (raw, depth, name) in
            [(".", 0, None), ("a", 1, Some("a")), ("a/b.c/d", 3, Some("d")), ("ü/ß", 2, Some("ß"))]
        {
            let path = PathParser::lenient().parse(raw).unwrap();
            assert_eq!((path.depth(), path.name()), (depth, name), "{raw}");
            assert_eq!(path.depth(), path.segments().count(), "{raw}");
            assert_eq!(path.clone().into_name(), name.unwrap_or_default(), "{raw}");
            let child = path.with_name("x");
            assert_eq!(child, path.join(&WsPath::from_key("x")), "{raw}");
            assert_eq!(path.into_scope_root().with_name("x").has_scope_root(), depth > 0, "{raw}");
        }
    }

    #[test]
    fn scope_roots_deepen_and_follow_the_path() {
        let rules = PathParser::lenient();
        let outer = rules.parse("tenants/a").unwrap().into_scope_root();
        let inner = rules.parse("jobs").unwrap().into_scope_root();
        let file = rules.parse("x/y").unwrap();
        let path = outer.join(&inner.join(&file));
        assert_eq!(path.as_str(), "tenants/a/jobs/x/y");
        assert_eq!(path.innermost_scope_root().as_str(), "tenants/a/jobs");
        assert_eq!(path.part_below_scope_root(), "x/y");
        assert_eq!(outer.join(&file).innermost_scope_root().as_str(), "tenants/a");
        assert_eq!(outer.join(&WsPath::root()).part_below_scope_root(), "");
        let parts = |path: &WsPath| -> (Vec<String>, String) {
            let ScopedPathParts { scopes: scope_roots, rest } = path.split_at_scope_roots();
            (scope_roots.into_iter().map(str::to_owned).collect(), rest.to_owned())
        };
        let owned = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
        assert_eq!(parts(&path), (owned(&["tenants/a", "jobs"]), "x/y".into()));
        assert_eq!(parts(&outer.join(&inner)), (owned(&["tenants/a"]), "jobs".into()));
        assert_eq!(parts(&outer), (owned(&[]), "tenants/a".into()));
        assert_eq!(parts(&file), (owned(&[]), "x/y".into()));
        assert_eq!(parts(&WsPath::root()), (owned(&[]), "".into()));
        let stripped = path.strip_prefix(&rules.parse("tenants").unwrap()).unwrap();
        assert_eq!(stripped.innermost_scope_root().as_str(), "a/jobs");
        assert_eq!(file.parent().unwrap().as_str(), "x");
        assert!(path.starts_with(&outer) && !path.starts_with(&rules.parse("tenants/ab").unwrap()));
    }
}
