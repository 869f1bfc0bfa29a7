//! How commands of a local workspace are judged, and who is asked.

use std::sync::Arc;

use ab_core::{Approver, DenyAll, Driver, Guard, Result};

pub use ab_policy::{
    CommandGuard, CommandInput, Corpus, Home, Judgement, Policy, Profile, Rule, RuleFile, Scene,
    built_in_rules, screen,
};

/// The judge of commands. Without a change: `guarded`, no rules of one's own, nobody to ask.
#[derive(Clone, Debug)]
pub struct CommandPolicy {
    pub profile: Profile,
    /// Rules beside the built-in ones.
    pub rules: RuleFile,
    /// Who is asked where a rule says so.
    pub approver: Arc<dyn Approver>,
}

impl Default for CommandPolicy {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            rules: RuleFile::default(),
            approver: Arc::new(DenyAll),
        }
    }
}

impl CommandPolicy {
    /// The guard that stands for it before the commands of a driver; none when it is off.
    pub(crate) fn guard(&self, driver: &Arc<dyn Driver>) -> Result<Option<Arc<dyn Guard>>> {
        if self.profile == Profile::Off {
            return Ok(None);
        }
        let root_aliases = driver.info().root_aliases;
        let guard = match self.rules == RuleFile::default() {
            true => CommandGuard::built_in(self.profile, &root_aliases),
            false => {
                let policy = Policy::with_rules(self.profile, &self.rules)?;
                CommandGuard::new(policy, &root_aliases)
            }
        };
        let guard = guard.with_home(Home::Start).asking(self.approver.clone());
        Ok(Some(Arc::new(guard.behind_walls_of(driver.clone()))))
    }
}
