//! How the commands of a local workspace are judged, and who approves them.

use std::sync::Arc;

use ab_core::{Approver, Driver, Guard, NoApprover, Result};
use ab_policy::{CommandGuard, HomeLocation, Policy, PolicyProfile, RuleFile};

/// The policy for commands. By default: profile `guarded`, the built-in rules, and no approver.
#[derive(Clone, Debug)]
pub struct CommandPolicySettings {
    pub profile: PolicyProfile,
    /// Rules in addition to the built-in ones.
    pub rules: RuleFile,
    /// Decides if a rule asks for approval.
    pub approver: Arc<dyn Approver>,
}

impl Default for CommandPolicySettings {
    fn default() -> Self {
        Self {
            profile: PolicyProfile::default(),
            rules: RuleFile::default(),
            approver: Arc::new(NoApprover),
        }
    }
}

impl CommandPolicySettings {
    /// The guard for the commands of `driver`, whose `HOME` is `home`; `None` if the profile is
    /// off.
    pub(crate) fn guard(
        &self,
        driver: &Arc<dyn Driver>,
        home: HomeLocation,
    ) -> Result<Option<Arc<dyn Guard>>> {
        if self.profile == PolicyProfile::Off {
            return Ok(None);
        }
        let root_aliases = driver.info().root_aliases;
        let guard = if self.rules == RuleFile::default() {
            CommandGuard::from_built_in_rules(self.profile, &root_aliases)
        } else {
            CommandGuard::new(Policy::with_user_rules(self.profile, &self.rules)?, &root_aliases)
        };
        let guard = guard.with_home(home).with_approver(self.approver.clone());
        Ok(Some(Arc::new(guard.with_effective_policy_from(driver.clone()))))
    }
}
