//! The guard that judges every command before it is executed.

use std::sync::Arc;

use ab_core::environment::{CodeLoadingEnvVariablePolicy, check_env_variable};
use ab_core::error::escape_unprintable;
use ab_core::guard::{GuardDecision, RefusedPath};
use ab_core::passed_check_cache::PassedCheckCache;
use ab_core::process::{ExecRequest, StdinMode};
use ab_core::{
    ApprovalAnswer, ApprovalRequest, Approver, Call, CallOutcome, Driver, EffectivePolicyControl,
    EnforcedControls, Error, ErrorKind, Guard, NoApprover, PolicyControlKind,
    PolicyControlStrength, Result, TriggeringRule, Verb, Verdict, WsPath,
};
use tokio::sync::OnceCell;

use crate::document::{PolicyDocument, PolicyDocumentMatch};
use crate::place::{CommandCheckContext, CommandStdin, HomeDirectoryMeaning};
use crate::policy::{CommandPolicy, MatchedRule, PolicyJudgement};
use crate::profile::PolicyProfile;
use crate::rules::{ArgumentPatterns, PolicyRule, PolicyRuleCategory};

/// Texts that are longer than this number of bytes are judged on a blocking thread.
const LONG_TEXT: usize = 16 * 1024;

/// Judges commands by a [`CommandPolicy`]. If the policy requires an approval, the guard asks an
/// [`Approver`].
#[derive(Debug)]
pub struct CommandGuard {
    rules: Rules,
    scene: CommandCheckContext,
    approver: Arc<dyn Approver>,
    /// The policy document of a space. It judges every command in addition to the rules.
    document: Option<Arc<PolicyDocument>>,
    /// A cache of commands that the rules allow, with their directory and variables. Entries stay
    /// valid, because neither the rules nor the context change.
    allowed: PassedCheckCache,
    /// The driver. It is asked which controls, such as the isolation of files, the sandbox of
    /// commands enforces.
    driver: Option<Arc<dyn Driver>>,
    /// The controls that are enforced, once they are known.
    enforced: OnceCell<EnforcedControls>,
}

#[derive(Clone, Debug)]
enum Rules {
    These(Box<CommandPolicy>),
    /// The built-in rules of this profile. They are loaded with the first command, because many
    /// workspaces never run a command.
    BuiltIn(PolicyProfile),
}

impl Rules {
    fn profile(&self) -> PolicyProfile {
        match self {
            Rules::These(policy) => policy.profile(),
            Rules::BuiltIn(profile) => *profile,
        }
    }

    fn judge(&self, command: &str, scene: &CommandCheckContext) -> Result<PolicyJudgement> {
        match self {
            Rules::These(policy) => Ok(policy.judge(command, scene)),
            Rules::BuiltIn(profile) => Ok(CommandPolicy::new(*profile)?.judge(command, scene)),
        }
    }
}

impl CommandGuard {
    /// A guard without an approver, for a workspace whose root has these absolute paths.
    pub fn new(policy: CommandPolicy, root_aliases: &[String]) -> Self {
        Self::by(Rules::These(Box::new(policy)), root_aliases)
    }

    /// Like [`new`](Self::new), with the built-in rules of a profile.
    pub fn from_built_in_rules(profile: PolicyProfile, root_aliases: &[String]) -> Self {
        Self::by(Rules::BuiltIn(profile), root_aliases)
    }

    fn by(rules: Rules, root_aliases: &[String]) -> Self {
        let scene = root_aliases
            .iter()
            .fold(CommandCheckContext::new(), |scene, alias| scene.with_root_alias(alias));
        Self {
            rules,
            scene,
            approver: Arc::new(NoApprover),
            document: None,
            allowed: PassedCheckCache::default(),
            driver: None,
            enforced: OnceCell::new(),
        }
    }

    /// Sets the approver that questions are sent to.
    pub fn with_approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = approver;
        self
    }

    /// Also judges commands by `document`. The stricter verdict applies.
    pub fn with_document(mut self, document: Arc<PolicyDocument>) -> Self {
        self.document = Some(document);
        self
    }

    /// Sets what `HOME` means for commands to which no other `HOME` is passed.
    pub fn with_home(mut self, home: HomeDirectoryMeaning) -> Self {
        self.scene = self.scene.with_home(home);
        self
    }

    /// Sets the driver that is asked which controls are enforced for commands. If there is no
    /// driver, or if the driver fails, no control counts as enforced and every rule applies.
    pub fn with_effective_policy_from(mut self, driver: Arc<dyn Driver>) -> Self {
        self.driver = Some(driver);
        self
    }

    /// Judges a request in the same way as before it runs, if these controls are enforced. No
    /// approver is asked. The path of the request must contain its scopes, as guards see it.
    pub fn judge_request(
        &self,
        request: &ExecRequest,
        enforced: EnforcedControls,
    ) -> Result<PolicyJudgement> {
        let enforced = match self.rules.profile() {
            PolicyProfile::Strict | PolicyProfile::Off => EnforcedControls::NONE,
            PolicyProfile::Guarded => enforced,
        };
        let command = request.command.to_shell_line();
        if self.rules.profile() != PolicyProfile::Off {
            check_env(request, enforced).map_err(|error| error.with_command(&command))?;
        }
        let scene = self.scene_at(Some(&request.cwd)).with_enforced_controls(enforced);
        self.rules.judge(&command, &scene.with_env(&request.env).with_stdin(input(request)))
    }

    /// The enforced controls, if they are already known.
    fn known_walls(&self) -> Option<EnforcedControls> {
        match (&self.driver, self.rules.profile()) {
            (None, _) | (_, PolicyProfile::Strict | PolicyProfile::Off) => {
                Some(EnforcedControls::NONE)
            }
            (Some(_), PolicyProfile::Guarded) => self.enforced.get().copied(),
        }
    }

    /// The enforced controls. Asks the driver if they are not known yet. If the driver fails, the
    /// next command asks the driver again.
    async fn walls(&self) -> EnforcedControls {
        if let Some(known) = self.known_walls() {
            return known;
        }
        let Some(driver) = &self.driver else { return EnforcedControls::NONE };
        let found = self.enforced.get_or_try_init(|| async {
            driver.effective_policy().await.map(|policy| EnforcedControls::from_policy(&policy))
        });
        found.await.copied().unwrap_or(EnforcedControls::NONE)
    }

    /// The context of a command that is started in `cwd`.
    fn scene_at(&self, cwd: Option<&WsPath>) -> CommandCheckContext {
        let Some(cwd) = cwd else { return self.scene.clone() };
        self.scene
            .in_scope(cwd.innermost_scope_root().as_str())
            .in_directory(cwd.part_below_scope_root())
    }

    /// The rule that decides about a call. `None` if no rule matches, or if the same call was
    /// allowed before.
    fn judged(&self, call: &Call<'_>, enforced: EnforcedControls) -> Result<Option<MatchedRule>> {
        let Some(judging) = self.judging(call, enforced)? else { return Ok(None) };
        let judgement = judging.judge()?;
        Ok(self.decided(call, judgement))
    }

    fn decided(&self, call: &Call<'_>, judgement: PolicyJudgement) -> Option<MatchedRule> {
        let hit = judgement.decisive_rule().cloned();
        let document = self.document.as_ref();
        let own = document.and_then(|document| document.judge_command(&judgement.analysis));
        let hit = match own {
            Some(own) if hit.as_ref().is_none_or(|hit| own.verdict >= hit.verdict) => {
                Some(own.into_matched_rule())
            }
            Some(_) | None => hit,
        };
        if hit.is_none() && is_remembered(call) {
            self.allowed.add_passed(texts(call));
        }
        hit
    }

    /// Everything that is needed to judge a call. `None` if the same call was allowed before.
    fn judging(&self, call: &Call<'_>, enforced: EnforcedControls) -> Result<Option<Judging>> {
        let command = call.command.unwrap_or_default();
        if let Some(request) = call.request {
            check_env(request, enforced).map_err(|error| error.with_command(command))?;
        }
        if is_remembered(call) && self.allowed.has_passed(texts(call)) {
            return Ok(None);
        }
        let mut scene = self.scene_at(call.path).with_enforced_controls(enforced);
        if let Some(request) = call.request {
            scene = scene.with_env(&request.env).with_stdin(input(request));
        }
        Ok(Some(Judging { rules: self.rules.clone(), command: command.to_owned(), scene }))
    }

    /// Refuses a call that the rules deny. If the rules require an approval, asks the approver.
    async fn settled(&self, call: &Call<'_>, hit: Option<MatchedRule>) -> Result<()> {
        let Some(hit) = hit else { return Ok(()) };
        let command = call.command.unwrap_or_default();
        if hit.verdict == Verdict::Deny {
            return Err(refusal(&hit, command, ErrorKind::DeniedByPolicy, "refused"));
        }
        let origin = TriggeringRule {
            rule: hit.rule.id.clone(),
            reason: hit.rule.reason.clone(),
            suggestion: hit.rule.suggestion.clone(),
        };
        match self.approver.ask(&ApprovalRequest::new(call, origin)).await {
            ApprovalAnswer::Yes(_) => Ok(()),
            ApprovalAnswer::No(by, why) if why.is_empty() => Err(refusal(
                &hit,
                command,
                ErrorKind::RejectedByPerson,
                &format!("not approved by {by}"),
            )),
            ApprovalAnswer::No(by, why) => {
                let word = format!("not approved by {by} ({})", escape_unprintable(&why));
                Err(refusal(&hit, command, ErrorKind::RejectedByPerson, &word))
            }
            ApprovalAnswer::Pending(approval) => {
                let word = format!("waits for approval {approval}");
                Err(refusal(&hit, command, ErrorKind::ApprovalPending, &word)
                    .with_hint("a person decides it; repeat the same call after the decision: it runs once after a yes")
                    .with_pending_approval_id(approval))
            }
            ApprovalAnswer::NoPersonAvailable => {
                let word = "needs an approval, but there is no way to ask for it";
                Err(refusal(&hit, command, ErrorKind::DeniedByPolicy, word))
            }
        }
    }
}

/// A command with everything that is needed to judge it.
struct Judging {
    rules: Rules,
    command: String,
    scene: CommandCheckContext,
}

impl Judging {
    fn judge(&self) -> Result<PolicyJudgement> {
        self.rules.judge(&self.command, &self.scene)
    }

    /// Judges the command on a blocking thread.
    async fn judge_aside(self) -> Result<PolicyJudgement> {
        let judged = tokio::task::spawn_blocking(move || self.judge()).await;
        judged.unwrap_or_else(|error| {
            let message = format!("the command could not be judged: {error}");
            Err(Error::new(ab_core::ErrorCode::UnsafeCommand, ErrorKind::DeniedByPolicy, message))
        })
    }
}

/// Fails if a variable of the request is refused.
fn check_env(request: &ExecRequest, enforced: EnforcedControls) -> Result<()> {
    // In a sandbox, a variable that makes a program load code affects only the command itself.
    let code = if enforced.contains(PolicyControlKind::Files) {
        CodeLoadingEnvVariablePolicy::Allowed
    } else {
        CodeLoadingEnvVariablePolicy::Refused
    };
    request.env.iter().try_for_each(|(name, value)| check_env_variable(name, value, code))
}

/// What is known about the standard input of a command.
fn input(request: &ExecRequest) -> CommandStdin {
    match (request.stdin, request.terminal, &request.stdin_for_guards) {
        (StdinMode::Closed, None, _) => CommandStdin::Closed,
        (StdinMode::Piped, None, Some(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => CommandStdin::Text(text.into()),
            Err(_) => CommandStdin::Unknown,
        },
        _ => CommandStdin::Unknown,
    }
}

/// The number of bytes that have to be judged.
fn length(call: &Call<'_>) -> usize {
    let input = call.request.and_then(|request| request.stdin_for_guards.as_ref());
    call.command.map_or(0, str::len) + input.map_or(0, |input| input.len())
}

/// Whether the call is cached if it is allowed. Calls with input are not cached, because they are
/// rare and the input may be long.
fn is_remembered(call: &Call<'_>) -> bool {
    call.request.is_none_or(|request| request.stdin_for_guards.is_none())
}

/// The cache key of a call. It contains everything on which the verdict about the call depends.
fn texts<'a>(call: &'a Call<'a>) -> impl Iterator<Item = &'a str> + Clone {
    // The whole path and its part below the scope root together determine the scope root.
    let cwd = call.path.into_iter().flat_map(|cwd| [cwd.as_str(), cwd.part_below_scope_root()]);
    let env = call.request.into_iter().flat_map(|request| {
        let piped = if input(request) == CommandStdin::Closed { "" } else { "piped" };
        let env = request.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        std::iter::once(piped).chain(env)
    });
    cwd.chain(call.command).chain(env)
}

impl Guard for CommandGuard {
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a> {
        if call.verb != Verb::Exec || call.command.is_none() {
            return GuardDecision::ALLOW;
        }
        if self.rules.profile() == PolicyProfile::Off && self.document.is_none() {
            return GuardDecision::ALLOW;
        }
        if length(call) <= LONG_TEXT
            && let Some(enforced) = self.known_walls()
        {
            return match self.judged(call, enforced) {
                Ok(None) => GuardDecision::ALLOW,
                Ok(hit) => GuardDecision::Pending(Box::pin(self.settled(call, hit))),
                Err(error) => GuardDecision::Ready(Err(error)),
            };
        }
        GuardDecision::Pending(Box::pin(async move {
            let enforced = self.walls().await;
            let hit = match self.judging(call, enforced)? {
                None => None,
                Some(judging) if length(call) > LONG_TEXT => {
                    self.decided(call, judging.judge_aside().await?)
                }
                Some(judging) => self.decided(call, judging.judge()?),
            };
            self.settled(call, hit).await
        }))
    }

    fn check_file_size(&self, _: &Call<'_>, _: u64) -> Result<()> {
        Ok(())
    }

    fn on_refused_path(&self, _: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<EffectivePolicyControl> {
        let profile = self.rules.profile();
        let strength = match profile {
            PolicyProfile::Off => PolicyControlStrength::NotEnforced,
            // Only advisory, because a program can do things that its command line does not show.
            PolicyProfile::Guarded | PolicyProfile::Strict => PolicyControlStrength::Advisory,
        };
        Some(EffectivePolicyControl {
            kind: PolicyControlKind::Commands,
            requested: profile.to_string(),
            in_force: profile.to_string(),
            strength,
            mechanism: "rules that judge the command line, but not the input of a running shell"
                .to_owned(),
            proof: None,
        })
    }

    fn after_call(&self, _: &Call<'_>, _: &CallOutcome<'_>) {}
}

impl PolicyDocumentMatch {
    /// Converts the match to the form of a matched rule of the command policy.
    fn into_matched_rule(self) -> MatchedRule {
        let Self { verdict, rule, reason, suggestion } = self;
        let rule = PolicyRule {
            id: rule.to_owned(),
            category: PolicyRuleCategory::UserDefined,
            verdict,
            profiles: Vec::new(),
            command: Vec::new(),
            prefix: Vec::new(),
            arguments: ArgumentPatterns::default(),
            path: Vec::new(),
            writes: false,
            effect: Vec::new(),
            overrides: Vec::new(),
            walls: Vec::new(),
            reason,
            suggestion: Some(suggestion),
            matches: Vec::new(),
            not_match: Vec::new(),
        };
        MatchedRule { rule: Arc::new(rule), verdict, command_index: None, detail: String::new() }
    }
}

fn refusal(hit: &MatchedRule, command: &str, kind: ErrorKind, word: &str) -> Error {
    let message = format!("{word}: {} (rule {})", hit.rule.reason, hit.rule.id);
    let error = Error::new(hit.rule.category.refusal_error_code(), kind, message)
        .with_verb(Verb::Exec)
        .with_command(command);
    match &hit.rule.suggestion {
        Some(suggestion) => error.with_hint(suggestion.clone()),
        None => error,
    }
}
