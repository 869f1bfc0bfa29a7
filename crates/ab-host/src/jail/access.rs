//! Applies the rules of restricted handles to the real path of a file.

use ab_core::WsPath;
use ab_core::path::AccessRulesBelowPrefix;
use rustix::fd::BorrowedFd;
use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::Errno;

use super::walk::{self, Final, Missing, Start, WalkOptions};
use super::{Fault, Jail};

/// What a call is going to do with the file that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Read the file or its metadata without changing anything. Hidden files do not exist for such
    /// a call.
    Look,
    /// Create the file, or change its content or attributes.
    Change,
    /// Move or remove the file with everything below it.
    Displace,
}

impl Purpose {
    /// Fails if the rules forbid this purpose for the file at `place`.
    pub(super) fn judge(self, place: &WsPath) -> Result<(), Fault> {
        if !place.has_access_rules() {
            return Ok(());
        }
        match self {
            Purpose::Look if place.is_hidden() => Err(Errno::NOENT.into()),
            Purpose::Look => Ok(()),
            Purpose::Change | Purpose::Displace if place.is_write_protected() => Err(Fault::Kept),
            Purpose::Change => Ok(()),
            Purpose::Displace if place.is_or_contains_restricted_path() => Err(Fault::Kept),
            Purpose::Displace => Ok(()),
        }
    }

    /// Fails if the rules forbid that a path is resolved through `place`.
    pub(super) fn pass(self, place: &WsPath) -> Result<(), Fault> {
        match self {
            _ if !place.is_hidden() => Ok(()),
            Purpose::Look => Err(Errno::NOENT.into()),
            Purpose::Change | Purpose::Displace => Err(Fault::Kept),
        }
    }
}

/// Returns whether a restricted path in the rules of `path` has a parent directory. The parent may
/// be a link.
pub(super) fn may_lead_through_links(path: &WsPath) -> bool {
    let mut sets = path.access_rules().iter();
    sets.any(|set| set.hidden.iter().chain(&set.read_only).any(|path| path.contains('/')))
}

impl Jail {
    /// Returns `place` with `rules` added. The rules are relative to `place`. `base` is a handle on
    /// `place`. If a restricted path leads through a link, the real path behind the link is also
    /// restricted.
    pub(super) fn with_rules(
        &self,
        place: WsPath,
        base: BorrowedFd<'_>,
        rules: Vec<AccessRulesBelowPrefix>,
        above: &[&str],
    ) -> WsPath {
        let led = |paths: &[String]| -> Vec<String> {
            paths.iter().filter_map(|path| self.led_by_links(base, path, above)).collect()
        };
        let targets = |set: &AccessRulesBelowPrefix| AccessRulesBelowPrefix {
            hidden: led(&set.hidden),
            read_only: led(&set.read_only),
            ..AccessRulesBelowPrefix::default()
        };
        let targets: Vec<AccessRulesBelowPrefix> = rules.iter().map(targets).collect();
        place.add_access_rules_for_subtree(rules.into_iter().chain(targets).collect())
    }

    /// Returns the real path of a restricted path if links in the directories above it lead
    /// elsewhere.
    fn led_by_links(&self, base: BorrowedFd<'_>, path: &str, above: &[&str]) -> Option<String> {
        let (parent, name) = path.rsplit_once('/')?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self.kernel(base, parent, flags, ResolveFlags::NO_SYMLINKS) {
            Some(Err(Errno::LOOP)) | None => {}
            // The part of the path that exists contains no link.
            Some(_) => return None,
        }
        // The walk keeps track of the real path only if there are rules. So pass a rule that
        // matches no path.
        let nothing = AccessRulesBelowPrefix {
            read_only: vec!["\0".to_owned()],
            ..AccessRulesBelowPrefix::default()
        };
        let root = WsPath::root().add_access_rules_for_subtree(vec![nothing]);
        let options =
            WalkOptions { last: Final::Follow, missing: Missing::Fail, purpose: Purpose::Look };
        let inside = |target: &str| self.inside(target, above);
        let spot = walk::walk(Start { base, place: &root }, parent, options, &inside).ok()?;
        let real = spot.place.join_unchecked(name);
        (real.as_str() != path).then(|| real.as_str().to_owned())
    }
}
