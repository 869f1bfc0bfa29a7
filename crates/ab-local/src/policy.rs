//! How the commands of a local workspace are judged, and who approves them.

use std::sync::Arc;

use ab_core::{Approver, Driver, Guard, NoApprover, Result};
use ab_policy::{
    CommandGuard, CommandPolicy, HomeDirectoryMeaning, PolicyDocument, PolicyDocumentGuard,
    PolicyProfile, PolicyRuleFile,
};

/// The policy for commands. The default is the profile `guarded`, the built-in rules, and no
/// approver.
#[derive(Clone, Debug)]
pub struct CommandPolicySettings {
    pub profile: PolicyProfile,
    /// Rules in addition to the built-in ones.
    pub rules: PolicyRuleFile,
    /// Decides about a command if a rule requires an approval.
    pub approver: Arc<dyn Approver>,
    /// Rules of a space for its files and commands, in addition to the other rules.
    pub document: Option<Arc<PolicyDocument>>,
}

impl Default for CommandPolicySettings {
    fn default() -> Self {
        Self {
            profile: PolicyProfile::default(),
            rules: PolicyRuleFile::default(),
            approver: Arc::new(NoApprover),
            document: None,
        }
    }
}

impl CommandPolicySettings {
    /// Returns the guard for the commands of `driver`. `home` is the `HOME` of these commands. If
    /// there is a document, also returns the guard for its rules. Returns no guard if the profile
    /// is off and there is no document.
    pub(crate) fn guards(
        &self,
        driver: &Arc<dyn Driver>,
        home: HomeDirectoryMeaning,
    ) -> Result<Vec<Arc<dyn Guard>>> {
        if self.profile == PolicyProfile::Off && self.document.is_none() {
            return Ok(Vec::new());
        }
        let root_aliases = driver.info().root_aliases;
        let guard = if self.rules == PolicyRuleFile::default() {
            CommandGuard::from_built_in_rules(self.profile, &root_aliases)
        } else {
            CommandGuard::new(
                CommandPolicy::with_user_rules(self.profile, &self.rules)?,
                &root_aliases,
            )
        };
        let guard = guard.with_home(home).with_approver(self.approver.clone());
        let guard = guard.with_effective_policy_from(driver.clone());
        Ok(match &self.document {
            Some(document) => {
                let files = PolicyDocumentGuard::new(document.clone());
                vec![Arc::new(files), Arc::new(guard.with_document(document.clone()))]
            }
            None => vec![Arc::new(guard)],
        })
    }
}
