//! The guard that stands before every command.

use std::sync::Arc;

use ab_core::guard::{Entry, Refusal};
use ab_core::passed::Passed;
use ab_core::{
    Answer, Approver, Call, Control, DenyAll, Error, Guard, Kind, Outcome, Question, Result,
    Strength, Subject, Verb, Verdict, WsPath,
};

use crate::place::{Home, Scene};
use crate::policy::{Hit, Judgement, Policy};
use crate::profile::Profile;

/// Judges commands by a [`Policy`]; what the policy asks goes to an [`Approver`].
#[derive(Debug)]
pub struct CommandGuard {
    rules: Rules,
    scene: Scene,
    approver: Arc<dyn Approver>,
    /// Commands that the rules allow, with where they start: neither rules nor scene ever change.
    allowed: Passed,
}

#[derive(Debug)]
enum Rules {
    These(Box<Policy>),
    /// Read when the first command comes: many workspaces never run one.
    BuiltIn(Profile),
}

impl Rules {
    fn profile(&self) -> Profile {
        match self {
            Rules::These(policy) => policy.profile(),
            Rules::BuiltIn(profile) => *profile,
        }
    }

    fn judge(&self, command: &str, scene: &Scene) -> Result<Judgement> {
        match self {
            Rules::These(policy) => Ok(policy.judge(command, scene)),
            Rules::BuiltIn(profile) => Ok(Policy::new(*profile)?.judge(command, scene)),
        }
    }
}

impl CommandGuard {
    /// A guard for a workspace whose root has these absolute names. Nobody can be asked.
    pub fn new(policy: Policy, root_aliases: &[String]) -> Self {
        Self::by(Rules::These(Box::new(policy)), root_aliases)
    }

    /// The same by the built-in rules of a profile.
    pub fn built_in(profile: Profile, root_aliases: &[String]) -> Self {
        Self::by(Rules::BuiltIn(profile), root_aliases)
    }

    fn by(rules: Rules, root_aliases: &[String]) -> Self {
        let scene = root_aliases.iter().fold(Scene::new(), |scene, alias| scene.with_root(alias));
        Self { rules, scene, approver: Arc::new(DenyAll), allowed: Passed::default() }
    }

    /// Takes questions to `approver`.
    pub fn asking(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = approver;
        self
    }

    /// What `HOME` is for the commands that run.
    pub fn with_home(mut self, home: Home) -> Self {
        self.scene = self.scene.with_home(home);
        self
    }

    /// What a command sees that is started in `cwd`.
    fn scene_at(&self, cwd: Option<&WsPath>) -> Scene {
        let Some(cwd) = cwd else { return self.scene.clone() };
        self.scene.scoped(cwd.fence().as_str()).at(cwd.below_fence())
    }
}

impl Guard for CommandGuard {
    fn enter<'a>(&'a self, call: &'a Call<'a>) -> Entry<'a> {
        let (Verb::Exec, Some(command)) = (call.verb, call.command) else { return Entry::PASS };
        if self.rules.profile() == Profile::Off {
            return Entry::PASS;
        }
        // The whole path and its end below the fence tell where the fence is.
        let cwd = call.path.into_iter().flat_map(|cwd| [cwd.as_str(), cwd.below_fence()]);
        let texts = cwd.chain([command]);
        if self.allowed.has(texts.clone()) {
            return Entry::PASS;
        }
        let judgement = match self.rules.judge(command, &self.scene_at(call.path)) {
            Ok(judgement) => judgement,
            Err(error) => return Entry::Ready(Err(error)),
        };
        let Some(hit) = judgement.decisive().cloned() else {
            self.allowed.note(texts);
            return Entry::PASS;
        };
        match judgement.verdict {
            Verdict::Allow => Entry::PASS,
            Verdict::Deny => Entry::Ready(Err(refusal(&hit, command, Kind::Denied, "refused"))),
            Verdict::Ask => Entry::Waits(Box::pin(async move {
                let question = Question {
                    actor: call.actor,
                    verb: call.verb,
                    path: call.path,
                    command: call.command,
                    rule: &hit.rule.id,
                    reason: &hit.rule.reason,
                    suggestion: hit.rule.suggestion.as_deref(),
                };
                match self.approver.ask(&question).await {
                    Answer::Yes => Ok(()),
                    Answer::No => Err(refusal(&hit, command, Kind::Rejected, "not approved")),
                    Answer::Nobody => {
                        let word = "needs approval, and nobody can be asked";
                        Err(refusal(&hit, command, Kind::Denied, word))
                    }
                }
            })),
        }
    }

    fn grow(&self, _: &Call<'_>, _: u64) -> Result<()> {
        Ok(())
    }

    fn refused(&self, _: &Refusal<'_>) {}

    fn controls(&self) -> Option<Control> {
        let profile = self.rules.profile();
        let strength = match profile {
            Profile::Off => Strength::Open,
            // A program does things that its command line does not say.
            Profile::Guarded | Profile::Strict => Strength::Advisory,
        };
        Some(Control {
            subject: Subject::Commands,
            asked: profile.to_string(),
            in_force: profile.to_string(),
            strength,
            mechanism: "command lines are parsed and judged by rules".to_owned(),
            proof: None,
        })
    }

    fn exit(&self, _: &Call<'_>, _: &Outcome<'_>) {}
}

fn refusal(hit: &Hit, command: &str, kind: Kind, word: &str) -> Error {
    let message = format!("{word}: {} (rule {})", hit.rule.reason, hit.rule.id);
    let error = Error::new(hit.rule.category.code(), kind, message)
        .with_verb(Verb::Exec)
        .with_command(command);
    match &hit.rule.suggestion {
        Some(suggestion) => error.with_hint(suggestion.clone()),
        None => error,
    }
}
