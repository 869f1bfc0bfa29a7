//! A path as a caller passes it.

use std::borrow::Cow;

use super::{PathParser, PathStrictness, WsPath};
use crate::error::Result;

/// A path in a call: a text, which the handle parses by its own rules, or a parsed path.
///
/// The handle uses only the text of a parsed path. It replaces the scope roots and access rules of
/// the path by its own.
#[derive(Clone, Copy, Debug)]
pub enum PathInput<'a> {
    Text(&'a str),
    Parsed(&'a WsPath),
}

impl PathInput<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            PathInput::Text(text) => text,
            PathInput::Parsed(path) => path.as_str(),
        }
    }
}

impl PathParser {
    /// Parses the path that a caller has passed.
    pub fn parse_input(&self, input: PathInput<'_>) -> Result<WsPath> {
        let path = match input {
            PathInput::Text(text) => return self.parse(text),
            PathInput::Parsed(path) => path,
        };
        if self.style == PathStrictness::Strict && !path.is_root() {
            return self.parse_strict(path.as_str());
        }
        for segment in path.segments() {
            self.check_segment(segment, path.as_str())?;
        }
        Ok(WsPath { text: path.text.clone(), ..WsPath::default() })
    }
}

impl<'a> From<&'a str> for PathInput<'a> {
    fn from(text: &'a str) -> Self {
        PathInput::Text(text)
    }
}

impl<'a> From<&'a &str> for PathInput<'a> {
    fn from(text: &'a &str) -> Self {
        PathInput::Text(text)
    }
}

impl<'a> From<&'a String> for PathInput<'a> {
    fn from(text: &'a String) -> Self {
        PathInput::Text(text)
    }
}

impl<'a> From<&'a Cow<'_, str>> for PathInput<'a> {
    fn from(text: &'a Cow<'_, str>) -> Self {
        PathInput::Text(text)
    }
}

impl<'a> From<&'a WsPath> for PathInput<'a> {
    fn from(path: &'a WsPath) -> Self {
        PathInput::Parsed(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(parser: &PathParser, path: &WsPath) -> Option<String> {
        parser.parse_input(path.into()).ok().map(|path| path.to_string())
    }

    #[test]
    fn a_parsed_path_is_judged_by_the_rules_that_get_it() {
        let views = PathParser::lenient().allow_reserved_names();
        for (text, lenient, strict) in [
            ("a/b", true, true),
            (".", true, true),
            ("a..b", true, false),
            (".ab-tmp-1", false, false),
            (".ab-wh-x", false, false),
        ] {
            let path = views.parse(text).unwrap();
            for (parser, is_taken) in
                [(PathParser::lenient(), lenient), (PathParser::strict(), strict)]
            {
                let expect = is_taken.then(|| text.to_owned());
                assert_eq!(accepted(&parser, &path), expect, "{text} {parser:?}");
            }
        }
    }

    #[test]
    fn an_alias_is_a_matter_of_text() {
        let parser = PathParser::lenient().with_root_alias("/srv");
        let path = PathParser::lenient().parse("srv/x").unwrap();
        assert_eq!(accepted(&parser, &path).as_deref(), Some("srv/x"));
        assert_eq!(parser.parse_input("/srv/x".into()).unwrap().to_string(), "x");
    }

    #[test]
    fn scopes_of_another_handle_are_left_behind() {
        let path = PathParser::lenient().parse("a").unwrap().into_scope_root();
        let taken = PathParser::lenient().parse_input((&path).into()).unwrap();
        assert!(!taken.has_scope_root() && path.has_scope_root());
    }
}
