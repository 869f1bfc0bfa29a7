//! Rules of restricted handles, asked about the places that a path really leads to.

use ab_core::WsPath;
use ab_core::path::AnchoredAccessRules;
use rustix::fd::BorrowedFd;
use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::Errno;

use super::walk::{self, Final, Manner, Missing, Start};
use super::{Fault, Jail};

/// What a call is about to do with what a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nothing that changes it. What is hidden is not there.
    Look,
    /// Make it, or change its content or attributes.
    Change,
    /// Move or remove it, with everything below.
    Displace,
}

impl Purpose {
    /// Whether the rules of a place let the call end there.
    pub(super) fn judge(self, place: &WsPath) -> Result<(), Fault> {
        if !place.has_access_rules() {
            return Ok(());
        }
        match self {
            Purpose::Look if place.is_hidden() => Err(Errno::NOENT.into()),
            Purpose::Look => Ok(()),
            Purpose::Change | Purpose::Displace if place.is_write_protected() => Err(Fault::Kept),
            Purpose::Change => Ok(()),
            Purpose::Displace if place.contains_restricted_path() => Err(Fault::Kept),
            Purpose::Displace => Ok(()),
        }
    }

    /// Whether the rules of a place let the call lead through it.
    pub(super) fn pass(self, place: &WsPath) -> Result<(), Fault> {
        match self {
            _ if !place.is_hidden() => Ok(()),
            Purpose::Look => Err(Errno::NOENT.into()),
            Purpose::Change | Purpose::Displace => Err(Fault::Kept),
        }
    }
}

/// Whether a restricted path of `path`'s rules has a directory above it, which may be a link.
pub(super) fn may_lead_through_links(path: &WsPath) -> bool {
    let mut sets = path.access_rules().iter();
    sets.any(|set| set.hidden.iter().chain(&set.read_only).any(|path| path.contains('/')))
}

impl Jail {
    /// `place` with `rules`, which count from it and `base` is open on. A restricted path that
    /// leads through a link restricts what it leads to as well.
    pub(super) fn with_rules(
        &self,
        place: WsPath,
        base: BorrowedFd<'_>,
        rules: Vec<AnchoredAccessRules>,
        above: &[&str],
    ) -> WsPath {
        let led = |paths: &[String]| -> Vec<String> {
            paths.iter().filter_map(|path| self.led_by_links(base, path, above)).collect()
        };
        let targets = |set: &AnchoredAccessRules| AnchoredAccessRules {
            hidden: led(&set.hidden),
            read_only: led(&set.read_only),
            ..AnchoredAccessRules::default()
        };
        let targets: Vec<AnchoredAccessRules> = rules.iter().map(targets).collect();
        place.with_access_rules_at_end(rules.into_iter().chain(targets).collect())
    }

    /// Where a restricted path leads, if links in the directories above it lead elsewhere.
    fn led_by_links(&self, base: BorrowedFd<'_>, path: &str, above: &[&str]) -> Option<String> {
        let (parent, name) = path.rsplit_once('/')?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self.kernel(base, parent, flags, ResolveFlags::NO_SYMLINKS) {
            Some(Err(Errno::LOOP)) | None => {}
            // No link is on the way, so far as there is one.
            Some(_) => return None,
        }
        // A rule that covers nothing, so that the walk keeps the place of what it finds.
        let nothing = AnchoredAccessRules {
            read_only: vec!["\0".to_owned()],
            ..AnchoredAccessRules::default()
        };
        let root = WsPath::root().with_access_rules_at_end(vec![nothing]);
        let manner = Manner { last: Final::Follow, missing: Missing::Fail, purpose: Purpose::Look };
        let inside = |target: &str| self.inside(target, above);
        let spot = walk::walk(Start { base, place: &root }, parent, manner, &inside).ok()?;
        let real = spot.place.join_unchecked(name);
        (real.as_str() != path).then(|| real.as_str().to_owned())
    }
}
