//! The access rules that a path carries to the driver that resolves it.
//!
//! A restricted handle adds its rules to each path of a call. The *anchor* of these rules is the
//! part of the path that leads to the root of the handle. The paths in the rules are relative to
//! the anchor. A view that translates the path also translates the anchor, in the same way as scope
//! roots.
//!
//! A driver that resolves links must check the file that it has really opened. It builds the path
//! of this file, adds the rules at the same anchors ([`WsPath::add_access_rules_for_subtree`]), and
//! checks this path.

use std::sync::Arc;

use super::WsPath;
use crate::restricted::PathFilter;

/// The access rules of all restricted handles through which a call came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRules {
    pub(super) sets: Vec<AccessRulesBelowPrefix>,
}

/// The restrictions of one handle. Paths are relative to the root of the handle. The empty path
/// stands for this root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRulesBelowPrefix {
    /// The anchor: the length in bytes of the part of the path that leads to the root of the
    /// handle.
    pub prefix_bytes: usize,
    /// These paths and everything below them do not exist for the caller.
    pub hidden: Vec<String>,
    /// These paths and everything below them cannot be changed.
    pub read_only: Vec<String>,
    /// A filter that hides further paths, such as those that match a pattern.
    pub hidden_by_filter: Option<HiddenByFilter>,
}

/// A filter for paths relative to the root of a handle. It can also be applied if the anchor is
/// above or below this root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenByFilter {
    filter: PathFilter,
    /// The path from the anchor of the rules to the root of the handle. Empty if they are equal, or
    /// if the anchor is below the root.
    down: String,
    /// The path from the root of the handle to the anchor of the rules, if the anchor is below the
    /// root.
    above: String,
}

impl HiddenByFilter {
    fn hides(&self, here: &str) -> bool {
        below(here, &self.down).is_some_and(|rest| self.filter.hides(&joined(&self.above, rest)))
    }

    /// The same filter with the directory `above`, relative to the current anchor, as the new
    /// anchor. `None` if the filter cannot apply to anything in this directory.
    fn inside(&self, above: &str) -> Option<Self> {
        let Self { filter, down, above: before } = self;
        let (down, above) = match (below(above, down), below(down, above)) {
            (Some(rest), _) => (String::new(), joined(before, rest)),
            (None, Some(rest)) => (rest.to_owned(), before.clone()),
            (None, None) => return None,
        };
        Some(Self { filter: filter.clone(), down, above })
    }

    fn with_path_prefix(&self, prefix: &str) -> Self {
        Self { down: joined(prefix, &self.down), ..self.clone() }
    }
}

impl AccessRules {
    /// Creates rules for paths that are relative to the root of the handle.
    pub fn new(hidden: &[WsPath], read_only: &[WsPath]) -> Self {
        let texts = |paths: &[WsPath]| paths.iter().map(|path| path.as_str().to_owned()).collect();
        let set = AccessRulesBelowPrefix {
            prefix_bytes: 0,
            hidden: texts(hidden),
            read_only: texts(read_only),
            hidden_by_filter: None,
        };
        Self { sets: if set.is_empty() { Vec::new() } else { vec![set] } }
    }

    /// Also hides the paths for which `filter` returns `true`. `filter` gets paths relative to the
    /// root of the handle.
    pub fn with_filter(mut self, filter: PathFilter) -> Self {
        let pattern = HiddenByFilter { filter, down: String::new(), above: String::new() };
        let pattern = Some(pattern);
        self.sets.push(AccessRulesBelowPrefix {
            hidden_by_filter: pattern,
            ..AccessRulesBelowPrefix::default()
        });
        self
    }

    fn wrapped(sets: Vec<AccessRulesBelowPrefix>) -> Option<Arc<Self>> {
        (!sets.is_empty()).then(|| Arc::new(Self { sets }))
    }
}

impl AccessRulesBelowPrefix {
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty() && self.read_only.is_empty() && self.hidden_by_filter.is_none()
    }

    /// The same rules with the directory `above`, relative to the current anchor, as the new
    /// anchor.
    fn inside(&self, above: &str) -> Self {
        let inside = |paths: &[String]| {
            let rest = |path: &String| match below(above, path) {
                // The whole directory is restricted.
                Some(_) => Some(String::new()),
                None => below(path, above).map(str::to_owned),
            };
            paths.iter().filter_map(rest).collect()
        };
        Self {
            prefix_bytes: 0,
            hidden: inside(&self.hidden),
            read_only: inside(&self.read_only),
            hidden_by_filter: self
                .hidden_by_filter
                .as_ref()
                .and_then(|pattern| pattern.inside(above)),
        }
    }

    /// The same rules with `prefix` before each path. The new anchor is the first `anchor_bytes`
    /// bytes of a path.
    pub fn with_path_prefix(&self, prefix: &str, anchor_bytes: usize) -> Self {
        let under = |paths: &[String]| paths.iter().map(|path| joined(prefix, path)).collect();
        Self {
            prefix_bytes: anchor_bytes,
            hidden: under(&self.hidden),
            read_only: under(&self.read_only),
            hidden_by_filter: self
                .hidden_by_filter
                .as_ref()
                .map(|pattern| pattern.with_path_prefix(prefix)),
        }
    }

    fn hides(&self, here: &str) -> bool {
        self.hidden.iter().any(|path| below(here, path).is_some())
            || self.hidden_by_filter.as_ref().is_some_and(|pattern| pattern.hides(here))
    }
}

/// `base` followed by `rest`. Either may be empty.
fn joined(base: &str, rest: &str) -> String {
    match (base.is_empty(), rest.is_empty()) {
        (true, _) => rest.to_owned(),
        (false, true) => base.to_owned(),
        (false, false) => format!("{base}/{rest}"),
    }
}

/// The rest of `path` below `base`. Whole segments are compared. Empty if they are equal.
fn below<'p>(path: &'p str, base: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(base)?;
    if base.is_empty() || rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

impl WsPath {
    /// Adds access rules that apply from the root of the workspace downwards.
    pub fn with_access_rules(mut self, rules: &Arc<AccessRules>) -> WsPath {
        if rules.sets.is_empty() {
            return self;
        }
        self.rules = match self.rules.take() {
            None => Some(rules.clone()),
            Some(own) => {
                AccessRules::wrapped(own.sets.iter().chain(&rules.sets).cloned().collect())
            }
        };
        self
    }

    pub fn without_access_rules(mut self) -> WsPath {
        self.rules = None;
        self
    }

    pub fn has_access_rules(&self) -> bool {
        self.rules.is_some()
    }

    pub fn access_rules(&self) -> &[AccessRulesBelowPrefix] {
        self.rules.as_ref().map_or(&[], |rules| &rules.sets)
    }

    /// The rules that apply to the part of the path with this index. Each part is resolved below a
    /// directory: part 0 below the root, part 1 below the result of the first scope root, and so
    /// on.
    pub fn access_rules_of_scope_root(&self, index: usize) -> Vec<AccessRulesBelowPrefix> {
        let start =
            index.checked_sub(1).and_then(|at| self.scope_root_ends.get(at)).copied().unwrap_or(0);
        let end = match self.scope_root_ends.get(index) {
            Some(root_end) if *root_end < self.text.len() => *root_end,
            Some(_) | None => self.last_base_end(start),
        };
        self.rules_between(start, end)
    }

    /// The access rules whose anchor is the whole path. Empty unless the path is its own scope
    /// root.
    pub fn access_rules_if_path_is_scope_root(&self) -> Vec<AccessRulesBelowPrefix> {
        if self.has_scope_root() && self.part_below_scope_root().is_empty() {
            self.rules_between(self.text.len(), usize::MAX)
        } else {
            Vec::new()
        }
    }

    fn last_base_end(&self, start: usize) -> usize {
        if self.has_scope_root() && self.part_below_scope_root().is_empty() {
            self.text.len().max(start + 1)
        } else {
            usize::MAX
        }
    }

    /// The rules whose anchors are in `start..end`, relative to `start`.
    fn rules_between(&self, start: usize, end: usize) -> Vec<AccessRulesBelowPrefix> {
        let within = |set: &&AccessRulesBelowPrefix| (start..end).contains(&set.prefix_bytes);
        let moved = |set: &AccessRulesBelowPrefix| {
            let prefix = self.text.get(start..set.prefix_bytes).unwrap_or_default();
            set.with_path_prefix(prefix.trim_start_matches('/'), 0)
        };
        self.access_rules().iter().filter(within).map(moved).collect()
    }

    /// Sets rules that were received together with the path. Returns `None` if an anchor is not at
    /// the end of a segment.
    pub fn try_replace_access_rules(mut self, sets: Vec<AccessRulesBelowPrefix>) -> Option<WsPath> {
        let ends_segment = |at: usize| {
            at == 0 || at == self.text.len() || self.text.as_bytes().get(at) == Some(&b'/')
        };
        if !sets.iter().all(|set| ends_segment(set.prefix_bytes)) {
            return None;
        }
        self.rules = AccessRules::wrapped(sets);
        Some(self)
    }

    /// Adds access rules that are relative to this path, so that their anchor is the whole path.
    pub fn add_access_rules_for_subtree(mut self, sets: Vec<AccessRulesBelowPrefix>) -> WsPath {
        if sets.iter().all(AccessRulesBelowPrefix::is_empty) {
            return self;
        }
        let anchor = self.text.len();
        let own = self.rules.take();
        let own = own.iter().flat_map(|rules| rules.sets.iter().cloned());
        let sets = sets.into_iter().filter(|set| !set.is_empty());
        let all = own
            .chain(sets.map(|set| AccessRulesBelowPrefix { prefix_bytes: anchor, ..set }))
            .collect();
        self.rules = AccessRules::wrapped(all);
        self
    }

    /// The rules of this path relative to `base`, which is this path or a directory above it.
    pub(super) fn rules_inside(&self, base: &str) -> Option<Arc<AccessRules>> {
        let inside = |set: &AccessRulesBelowPrefix| match set.prefix_bytes.checked_sub(base.len()) {
            Some(0) => set.with_path_prefix("", 0),
            Some(deeper) => set.with_path_prefix("", deeper - 1),
            None => set.inside(base[set.prefix_bytes..].trim_start_matches('/')),
        };
        let sets = self.access_rules().iter().map(inside).filter(|set| !set.is_empty()).collect();
        AccessRules::wrapped(sets)
    }

    /// The rules of `self` together with the rules of `below`. `below` starts at the end of `self`.
    pub(super) fn rules_joined(&self, below: &WsPath) -> Option<Arc<AccessRules>> {
        if below.rules.is_none() {
            return self.rules.clone();
        }
        let end = self.text.len();
        let anchor = |set: &AccessRulesBelowPrefix| match (end, set.prefix_bytes) {
            (0, anchor) => anchor,
            (end, 0) => end,
            (end, anchor) => end + 1 + anchor,
        };
        let moved = below
            .access_rules()
            .iter()
            .map(|set| AccessRulesBelowPrefix { prefix_bytes: anchor(set), ..set.clone() });
        AccessRules::wrapped(self.access_rules().iter().cloned().chain(moved).collect())
    }

    /// The rules that apply to the first `end` bytes of this path.
    pub(super) fn rules_above(&self, end: usize) -> Option<Arc<AccessRules>> {
        let rules = self.rules.as_ref()?;
        if rules.sets.iter().all(|set| set.prefix_bytes <= end) {
            return Some(rules.clone());
        }
        let kept = rules.sets.iter().filter(|set| set.prefix_bytes <= end).cloned().collect();
        AccessRules::wrapped(kept)
    }

    /// Whether the rules hide this path. Only the text of the path is examined.
    pub fn is_hidden(&self) -> bool {
        self.is_ruled_by(AccessRulesBelowPrefix::hides)
    }

    /// Whether the rules forbid changes of this path, because it is hidden or read-only. Only the
    /// text of the path is examined.
    pub fn is_write_protected(&self) -> bool {
        let kept = |set: &AccessRulesBelowPrefix, here: &str| {
            set.hides(here) || set.read_only.iter().any(|path| below(here, path).is_some())
        };
        self.is_ruled_by(kept)
    }

    /// Whether there is a restricted path at or below this one. In this case, moving or removing
    /// this path would change the restricted path.
    pub fn is_or_contains_restricted_path(&self) -> bool {
        let holds = |set: &AccessRulesBelowPrefix, here: &str| {
            set.hidden.iter().chain(&set.read_only).any(|path| below(path, here).is_some())
        };
        self.is_ruled_by(holds)
    }

    /// Whether the rules hide the entry `name` in this directory.
    pub fn hides_child(&self, name: &str) -> bool {
        let fits = |set: &AccessRulesBelowPrefix, here: &str| {
            set.hidden_by_filter.as_ref().is_some_and(|pattern| pattern.hides(&joined(here, name)))
        };
        self.hides_child_ignoring_filters(name) || self.is_ruled_by(fits)
    }

    /// Like [`hides_child`](Self::hides_child), but ignores filters. It is used by a search, which
    /// reads ignore files even if a filter hides them, for example a filter for all names with a
    /// leading dot.
    pub fn hides_child_ignoring_filters(&self, name: &str) -> bool {
        let hides = |set: &AccessRulesBelowPrefix, here: &str| {
            set.hidden.iter().any(|path| below(path, here).is_some_and(|rest| rest == name))
        };
        self.is_ruled_by(hides)
    }

    fn is_ruled_by(&self, judge: impl Fn(&AccessRulesBelowPrefix, &str) -> bool) -> bool {
        self.access_rules().iter().any(|set| {
            let here = self.text.get(set.prefix_bytes..).unwrap_or_default();
            judge(set, here.trim_start_matches('/'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::PathParser;
    use super::*;

    fn path(text: &str) -> WsPath {
        PathParser::lenient().parse(text).unwrap()
    }

    fn rules(hidden: &[&str], read_only: &[&str]) -> Arc<AccessRules> {
        let paths = |texts: &[&str]| texts.iter().map(|text| path(text)).collect::<Vec<_>>();
        Arc::new(AccessRules::new(&paths(hidden), &paths(read_only)))
    }

    fn judged(path: &WsPath) -> (bool, bool, bool) {
        (path.is_hidden(), path.is_write_protected(), path.is_or_contains_restricted_path())
    }

    #[test]
    fn a_place_is_judged_by_whole_segments() {
        let rules = rules(&["secret", "a/.env"], &["kept"]);
        for (text, expect) in [
            ("secret", (true, true, true)),
            ("secret/key", (true, true, false)),
            ("secrets", (false, false, false)),
            ("a", (false, false, true)),
            ("a/.env", (true, true, true)),
            ("a/.environment", (false, false, false)),
            ("kept/x", (false, true, false)),
            ("kept", (false, true, true)),
            (".", (false, false, true)),
        ] {
            assert_eq!(judged(&path(text).with_access_rules(&rules)), expect, "{text}");
        }
        assert!(path("a").with_access_rules(&rules).hides_child(".env"));
        assert!(path(".").with_access_rules(&rules).hides_child("secret"));
        assert!(!path(".").with_access_rules(&rules).hides_child("a"));
        assert_eq!(judged(&path("secret")), (false, false, false));
    }

    #[test]
    fn rules_move_with_the_path() {
        let rules = rules(&["x/secret"], &["x/kept"]);
        let below = |text: &str| path(text).with_access_rules(&rules);
        // In a scope.
        let scope = path("tenants/a").into_scope_root();
        assert!(scope.join(&below("x/secret/key")).is_hidden());
        assert!(scope.join(&below("x/kept")).is_write_protected());
        assert!(!scope.join(&below("x")).is_hidden());
        let root = scope.join(&below("."));
        assert!(root.with_name("x").hides_child("secret"));
        // Through a mount whose mount point is the directory, is above it, or is below it.
        for (point, text, hidden) in [
            ("x", "x/secret/key", true),
            ("x", "x/other", false),
            ("x/secret", "x/secret/key", true),
            ("x/secret", "x/secret", true),
            ("x/other", "x/other/secret", false),
        ] {
            let inward = below(text).strip_prefix(&path(point)).unwrap();
            assert_eq!(inward.is_hidden(), hidden, "{point} {text}");
        }
        let inward = scope.join(&below("x/secret")).strip_prefix(&path("tenants")).unwrap();
        assert!(inward.is_hidden());
        assert_eq!(inward.access_rules()[0].prefix_bytes, 1);
        // From a path to its parent directory.
        assert!(scope.join(&below("x/y")).parent().unwrap().hides_child("secret"));
        assert!(!scope.join(&below(".")).parent().unwrap().has_access_rules());
    }

    #[test]
    fn a_filter_judges_the_path_below_its_handle() {
        let filter = PathFilter::new(|path| path == "x/a.key" || path.starts_with("x/a.key/"));
        let rules = Arc::new(AccessRules::default().with_filter(filter));
        let below = |text: &str| path(text).with_access_rules(&rules);
        assert_eq!(judged(&below("x/a.key")), (true, true, false));
        assert_eq!(judged(&below("x/a.key/b")), (true, true, false));
        assert_eq!(judged(&below("a.key")), (false, false, false));
        assert!(below("x").hides_child("a.key") && !below("x").hides_child("b"));
        assert!(!below("x").hides_child_ignoring_filters("a.key"));
        // In a scope, through mounts, and at the target of a link.
        let scope = path("tenants/a").into_scope_root();
        assert!(scope.join(&below("x/a.key")).is_hidden());
        assert!(!scope.join(&below("a.key")).is_hidden());
        for (point, text, hidden) in [
            ("x", "x/a.key", true),
            ("x", "x/b", false),
            ("x/a.key", "x/a.key/b", true),
            ("y", "y/x/a.key", false),
        ] {
            let inward = below(text).strip_prefix(&path(point)).unwrap();
            assert_eq!(inward.is_hidden(), hidden, "{point} {text}");
        }
        let whole = scope.join(&below("l"));
        let inward = whole.strip_prefix(&path("tenants")).unwrap();
        assert!(!inward.is_hidden() && inward.has_access_rules());
        let place =
            path("elsewhere").add_access_rules_for_subtree(whole.access_rules_of_scope_root(1));
        assert!(place.with_name("x").hides_child("a.key"));
        let place = WsPath::root().add_access_rules_for_subtree(whole.rules_between(0, 100));
        assert!(place.join(&path("tenants/a/x/a.key")).is_hidden());
        assert!(!place.join(&path("x/a.key")).is_hidden());
    }

    #[test]
    fn rules_add_up() {
        let path = path("a/b")
            .with_access_rules(&rules(&["a"], &[]))
            .with_access_rules(&rules(&[], &["c"]));
        assert!(path.is_hidden());
        assert_eq!(path.access_rules().len(), 2);
        assert!(path.clone().with_access_rules(&rules(&[], &[])).is_hidden());
        assert!(!path.without_access_rules().is_hidden());
    }

    #[test]
    fn rules_count_from_the_scope_root_that_they_were_set_at() {
        let whole = path("t/a")
            .into_scope_root()
            .join(&path("b/c").with_access_rules(&rules(&["b/x"], &[])));
        assert_eq!(whole.access_rules_of_scope_root(0), []);
        assert_eq!(whole.access_rules_of_scope_root(1)[0].hidden, ["b/x"]);
        assert_eq!(whole.rules_between(0, 4)[0].hidden, ["t/a/b/x"]);
        assert_eq!(whole.access_rules_if_path_is_scope_root(), []);
        let place =
            path("elsewhere").add_access_rules_for_subtree(whole.access_rules_of_scope_root(1));
        assert!(place.with_name("b").hides_child("x"));
        let own =
            path("t/a").into_scope_root().join(&path(".").with_access_rules(&rules(&["b/x"], &[])));
        assert_eq!(own.access_rules_of_scope_root(0), []);
        assert_eq!(own.access_rules_if_path_is_scope_root()[0].hidden, ["b/x"]);
        let root = path(".").with_access_rules(&rules(&["x"], &[]));
        assert_eq!(root.access_rules_of_scope_root(0)[0].hidden, ["x"]);
    }
}
