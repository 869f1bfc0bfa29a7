//! `agent chat`: a conversation with a coding agent that works in the sandbox of a workspace.

mod place;
mod view;

use std::collections::VecDeque;
use std::env;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_acp::agent_readiness::{self, AgentReadyToLaunch, HostEnvironment, ReadinessProblem};
use ab_acp::catalog::AgentCatalogEntry;
use ab_acp::install::AgentInstallDir;
use ab_acp::launch::{AgentLaunchOptions, LaunchedAgent, launch_agent, toolchain_for_agent_path};
use ab_acp::login_files::copy_login_files_to_agent_home;
use ab_acp::{
    AcpClient, AcpError, AcpSessionId, AcpSessionSetup, AgentEvent, AgentEventStream,
    PermissionAnswer, PermissionOptionKind, PermissionQuestion, PromptPart,
};
use ab_core::error::escape_unprintable;
use ab_core::{Error, ErrorCode, ErrorKind, Isolation, NetworkAccess};
use ab_local::{LaunchedProgram, LocalWorkspace, ProcessOutputReader};
use clap::Args;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use self::place::Place;
use self::view::View;
use super::exec::{Mode, NetworkChoice, in_force};
use crate::config::{CatalogFlags, Config};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::follow::Approve;
use crate::keyboard::Keyboard;
use crate::signals::Signals;
use crate::terminal::{Terminal, talk};
use crate::workspace::Starter;

/// Maximum number of bytes of the agent's standard error that are shown when the agent fails.
const ERRORS: usize = 2048;
/// How long to wait for the agent to exit after its connection has ended.
const END_TIME: Duration = Duration::from_secs(5);

/// Talk to a coding agent that works in a workspace
///
/// Each line of standard input is a prompt. The agent changes the files of the workspace itself: for
/// work on a copy that is delivered as a branch, use `agent-backend task`. Before it does something that
/// needs permission, the agent asks. Ctrl-C cancels what it is doing; at the prompt, Ctrl-C or Ctrl-D
/// ends the chat.
#[derive(Args, Debug)]
pub(crate) struct Chat {
    /// ID of the agent; `agent-backend agent list` shows all
    #[arg(value_name = "AGENT")]
    agent: String,

    /// Directory of the workspace [default: the current directory]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Continue the last conversation with this agent in this workspace
    #[arg(long = "continue")]
    goes_on: bool,

    /// How to answer questions of the agent; without a terminal, 'ask' denies them
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    approve: Approve,

    /// Isolation of the agent [default: isolation in the configuration file]
    #[arg(long, value_enum, value_name = "MODE")]
    isolation: Option<Mode>,

    /// Network of the agent [default: network in the configuration file]
    #[arg(long, value_enum, value_name = "NETWORK")]
    network: Option<NetworkChoice>,

    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Data directory, which contains the home directory of the agent
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Print one JSON value in each line for what the agent writes, does and asks
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(chat: Chat, terminal: &mut Terminal) -> Result<(), Failure> {
    let flags = CatalogFlags { config: chat.config.clone(), data_dir: chat.data_dir.clone() };
    let config = Config::load(&flags.serve())?;
    let installed = AgentInstallDir::new(config.data_dir.value.join("agents"));
    let host = HostEnvironment::new(env::vars_os());
    let agent = agent_readiness::resolve_agent(&config.catalog, &chat.agent, &installed, &host);
    let agent = agent.map_err(|unready| {
        let message = unready.message(&flags.repeated());
        match unready {
            ReadinessProblem::UnknownAgent { .. } => Failure::usage(message),
            _ => Failure::from(Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message)),
        }
    })?;
    let entry = &agent.entry;
    let root = root(chat.root.as_deref())?;
    let made = Place::make(&config.data_dir.value, &entry.id, &root);
    let place =
        made.map_err(|error| Failure::input("create the home directory of the agent", error))?;
    let last = if chat.goes_on { Some(last(&place, entry)?) } else { None };
    copy_login_files_to_agent_home(&place.home(), &agent.login_files).await?;
    let workspace = open(&chat, &config, entry, &root, &place).await?;
    tell_what_is_in_force(&chat, &workspace, terminal).await?;
    let talked = match Conversation::start(&chat, &agent, &root, last, &workspace).await {
        Ok(mut conversation) => {
            let talked = conversation.talk(&place, terminal).await;
            conversation.end().await;
            talked
        }
        Err(failure) => Err(failure),
    };
    let closed = workspace.backend.destroy().await;
    talked.and(closed.map_err(Failure::from))
}

fn root(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let current = || Starter::Program.current_directory();
    let named = named.map_or_else(current, |path| Ok(path.to_owned()))?;
    named.canonicalize().map_err(|error| {
        Failure::input(format!("open the directory {}", named.display()), error)
            .with_hint("name an existing directory with --root")
    })
}

fn last(place: &Place, entry: &AgentCatalogEntry) -> Result<AcpSessionId, Failure> {
    let last = place.last().map_err(|error| Failure::input("read the last conversation", error))?;
    last.ok_or_else(|| {
        Failure::usage(format!(
            "there is no earlier conversation with {} in this workspace",
            entry.title()
        ))
        .with_hint("leave --continue out")
    })
}

async fn open(
    chat: &Chat,
    config: &Config,
    entry: &AgentCatalogEntry,
    root: &Path,
    place: &Place,
) -> Result<LocalWorkspace, Failure> {
    let sessions = &config.sessions;
    let (isolation, floor) = match chat.isolation.map(Isolation::from) {
        // If the user named an isolation, it is also the minimum isolation.
        Some(asked) if asked != Isolation::Auto => (asked, asked),
        _ => (sessions.isolation.value, sessions.minimum_isolation.value),
    };
    let network = chat.network.map_or(sessions.network.value, NetworkAccess::from);
    let mut builder = LocalWorkspace::builder(root)
        .home_dir(place.home())
        .isolation(isolation)
        .minimum_isolation(floor)
        .network(network)
        .mount_own_executable();
    let own = entry.toolchains.iter().map(|directory| toolchain_for_agent_path(directory));
    for toolchain in own.chain(sessions.toolchains.value.toolchains.iter().cloned()) {
        builder = builder.add_toolchain(toolchain);
    }
    Ok(builder.open().await?)
}

async fn tell_what_is_in_force(
    chat: &Chat,
    workspace: &LocalWorkspace,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let policy = workspace.backend.effective_policy().await?;
    if let Some(isolation) = policy.isolation {
        terminal.note(&in_force(isolation, chat.isolation.is_some()));
    }
    Ok(())
}

/// A running agent with an open conversation, and the terminal of the user.
struct Conversation {
    client: AcpClient,
    session: AcpSessionId,
    events: AgentEventStream,
    process: LaunchedProgram,
    errors: ErrorTail,
    signals: Signals,
    keyboard: Keyboard,
    approve: Approve,
    /// Whether a person types the prompts and the answers.
    is_interactive: bool,
    questions: VecDeque<PermissionQuestion>,
    view: View,
}

/// What ended the wait for the user's next line.
enum Typed {
    Line(String),
    End,
}

impl Conversation {
    /// Starts the agent, and opens a new conversation or resumes the last one.
    async fn start(
        chat: &Chat,
        agent: &AgentReadyToLaunch,
        root: &Path,
        last: Option<AcpSessionId>,
        workspace: &LocalWorkspace,
    ) -> Result<Conversation, Failure> {
        let own = env::current_exe().map_err(|error| Failure::input("find this program", error))?;
        let setup = AgentLaunchOptions {
            own_executable: Some(own),
            credentials: agent.credentials.clone(),
            ..AgentLaunchOptions::default()
        };
        let mut signals = Signals::watch();
        let entry = &agent.entry;
        let launched = launch_agent(&workspace.launcher, entry, &setup).await?;
        let LaunchedAgent { client, events, program: mut process } = launched;
        let mut errors = ErrorTail { reader: process.stderr.take(), last: Vec::new() };
        let setup = AcpSessionSetup { cwd: root.display().to_string(), mcp_servers: Vec::new() };
        let opening = async {
            client.initialize().await?;
            match last {
                Some(last) => client.load_or_resume_session(&last, &setup).await.map(|_| last),
                None => client.new_session(&setup).await,
            }
        };
        let opened = tokio::select! {
            opened = opening => opened,
            () = errors.read_all() => Err(client.wait_closed().await),
            exit = signals.next() => return Err(Failure::Told(exit)),
        };
        let session = match opened {
            Ok(session) => session,
            Err(error) => return Err(failed(entry, &error, &mut process, &mut errors).await),
        };
        let is_interactive = io::stdin().is_terminal() && !chat.json;
        Ok(Conversation {
            client,
            session,
            events,
            process,
            errors,
            signals,
            keyboard: Keyboard::open(),
            approve: chat.approve,
            is_interactive,
            questions: VecDeque::new(),
            view: View::new(root.to_owned()),
        })
    }

    /// Reads prompts and sends them to the agent until the input ends.
    async fn talk(&mut self, place: &Place, terminal: &mut Terminal) -> Result<(), Failure> {
        let remembered = place.remember(&self.session);
        remembered.map_err(|error| Failure::input("store the ID of the conversation", error))?;
        loop {
            if self.is_interactive {
                talk("> ");
            }
            match self.prompt(terminal).await? {
                Typed::End => return Ok(()),
                Typed::Line(line) if line.trim().is_empty() => {}
                Typed::Line(line) => {
                    let prompt = [PromptPart::Text(line)];
                    if let Err(error) = self.client.start_turn(&self.session, &prompt).await {
                        return Err(self.failed(&error).await);
                    }
                    self.turn(terminal).await?;
                }
            }
        }
    }

    /// Waits for the next prompt. Meanwhile shows what the agent sends.
    async fn prompt(&mut self, terminal: &mut Terminal) -> Result<Typed, Failure> {
        loop {
            tokio::select! {
                line = self.keyboard.next() => {
                    return match line {
                        Some(line) => {
                            let line = line.map_err(|error| Failure::input("read the prompt", error))?;
                            Ok(Typed::Line(line))
                        }
                        None => Ok(Typed::End),
                    };
                }
                event = self.events.next() => self.aside(event, terminal).await?,
                () = self.errors.read() => {}
                exit = self.signals.next() => {
                    talk("\n");
                    return match exit {
                        Exit::Interrupted => Ok(Typed::End),
                        exit => Err(Failure::Told(exit)),
                    };
                }
            }
        }
    }

    /// Handles an event that arrives outside a turn.
    async fn aside(
        &mut self,
        event: Option<AgentEvent>,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        match event {
            Some(AgentEvent::Update { update, .. }) => self.view.show(update, terminal),
            // Dropping a question that arrives outside a turn cancels it.
            Some(_) => Ok(()),
            None => {
                let error = self.client.wait_closed().await;
                Err(self.failed(&error).await)
            }
        }
    }

    /// Shows a turn until it ends, and asks the user the questions of the agent.
    async fn turn(&mut self, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                event = self.events.next() => match event {
                    Some(AgentEvent::TurnEnded { result, .. }) => {
                        self.questions.clear();
                        return self.ended(result, terminal).await;
                    }
                    Some(AgentEvent::Permission(question)) => self.asked(question, terminal)?,
                    event => self.aside(event, terminal).await?,
                },
                line = self.keyboard.next(), if !self.questions.is_empty() => {
                    let line = line.transpose().map_err(|error| Failure::input("read the answer", error))?;
                    self.answered(line.as_deref(), terminal)?;
                }
                () = self.errors.read() => {}
                exit = self.signals.next() => {
                    if is_cancelled || exit != Exit::Interrupted {
                        return Err(Failure::Told(exit));
                    }
                    is_cancelled = true;
                    self.questions.clear();
                    if io::stdin().is_terminal() {
                        // Discard lines that were typed during the cancelled turn, so that they do
                        // not become prompts.
                        self.keyboard.forget();
                    }
                    self.view.close(terminal)?;
                    terminal.note("cancelling; press Ctrl-C again to end the chat");
                    if let Err(error) = self.client.cancel_turn(&self.session).await {
                        return Err(self.failed(&error).await);
                    }
                }
            }
        }
    }

    async fn ended(
        &mut self,
        result: Result<ab_acp::TurnEnd, AcpError>,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        match result {
            Ok(end) => self.view.end_turn(&end, terminal),
            Err(error) if error.ends_connection() => Err(self.failed(&error).await),
            Err(error) => {
                self.view.fail_turn(terminal)?;
                terminal.tell(&told(error.to_string()));
                // A failed prompt ends a script with a failure. A person may enter another prompt.
                if self.is_interactive { Ok(()) } else { Err(Failure::Told(Exit::Failed)) }
            }
        }
    }

    fn asked(
        &mut self,
        question: PermissionQuestion,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        match self.approve {
            Approve::Always => answer(question, &PermissionAnswer::Allow, terminal),
            Approve::Never => answer(question, &PermissionAnswer::Reject, terminal),
            Approve::Ask if self.is_interactive => {
                self.questions.push_back(question);
                if self.questions.len() == 1 {
                    self.ask(terminal)?;
                }
                return Ok(());
            }
            Approve::Ask => {
                self.view.ask(&question, terminal)?;
                terminal.note(
                    "denied: there is no terminal to ask; pass --approve always or --approve never",
                );
                answer(question, &PermissionAnswer::Reject, terminal);
            }
        }
        Ok(())
    }

    /// Shows the first open question.
    fn ask(&mut self, terminal: &mut Terminal) -> Result<(), Failure> {
        let Some(question) = self.questions.front() else { return Ok(()) };
        self.keyboard.forget();
        self.view.ask(question, terminal)?;
        talk(&prompt(&offers(question)));
        Ok(())
    }

    /// Answers the first open question. The end of the input counts as a refusal.
    fn answered(&mut self, line: Option<&str>, terminal: &mut Terminal) -> Result<(), Failure> {
        let Some(question) = self.questions.pop_front() else { return Ok(()) };
        let word = line.map(|line| line.trim().to_ascii_lowercase());
        let chosen = match word.as_deref() {
            Some("y" | "yes") if offers(&question).allow => Some(PermissionAnswer::Allow),
            Some("n" | "no") | None => Some(PermissionAnswer::Reject),
            Some("a" | "always") => always(&question).map(PermissionAnswer::Choose),
            Some(_) => None,
        };
        match chosen {
            Some(chosen) => answer(question, &chosen, terminal),
            None => self.questions.push_front(question),
        }
        self.ask(terminal)
    }

    async fn failed(&mut self, error: &AcpError) -> Failure {
        let title = self.client.agent_capabilities().and_then(|profile| profile.name.clone());
        ended(title.as_deref().unwrap_or("the agent"), error, &mut self.process, &mut self.errors)
            .await
    }

    /// Ends the agent and everything that it started.
    async fn end(self) {
        self.client.close().await;
        self.process.kill().await;
    }
}

/// Answers a question, and says so if the agent offers no option for the answer.
fn answer(question: PermissionQuestion, answer: &PermissionAnswer, terminal: &mut Terminal) {
    let act = match answer {
        PermissionAnswer::Allow => "allow",
        PermissionAnswer::Reject => "deny",
        PermissionAnswer::Choose(_) | PermissionAnswer::Cancel => "answer",
    };
    if !question.offers(answer) {
        terminal.note(&format!("cancelled: the agent offers no option to {act} it"));
    }
    // `false` means that the turn has been cancelled in the meantime.
    question.answer(answer);
}

/// The answers for which the agent offers an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offers {
    allow: bool,
    deny: bool,
    always: bool,
}

fn offers(question: &PermissionQuestion) -> Offers {
    Offers {
        allow: question.offers(&PermissionAnswer::Allow),
        deny: question.offers(&PermissionAnswer::Reject),
        always: always(question).is_some(),
    }
}

/// The line that asks for an answer, with the letters that have an effect.
fn prompt(offers: &Offers) -> String {
    let deny = if offers.deny { "n" } else { "n to cancel" };
    let allow = offers.allow.then_some("y");
    let always = offers.always.then_some("a for always");
    let letters: Vec<&str> = allow.into_iter().chain([deny]).chain(always).collect();
    let letters = letters.join(", ");
    if offers.allow {
        format!("allow it? [{letters}] ")
    } else {
        format!("the agent offers no option to allow it [{letters}] ")
    }
}

/// The id of the option that allows this call and all similar ones from now on.
fn always(question: &PermissionQuestion) -> Option<String> {
    let option = question.options.iter().find(|it| it.kind == PermissionOptionKind::AllowAlways)?;
    Some(option.id.clone())
}

/// The last bytes that the agent wrote to standard error. Reading them keeps the agent from
/// blocking on a full pipe.
struct ErrorTail {
    reader: Option<ProcessOutputReader>,
    last: Vec<u8>,
}

impl ErrorTail {
    /// Reads one piece of output. After the end of the output it never returns. Cancel safe.
    async fn read(&mut self) {
        let mut piece = [0; 4096];
        let read = match &mut self.reader {
            Some(reader) => reader.read(&mut piece).await.unwrap_or_default(),
            None => std::future::pending().await,
        };
        if read == 0 {
            self.reader = None;
        }
        self.last.extend_from_slice(&piece[..read]);
        let surplus = self.last.len().saturating_sub(ERRORS);
        self.last.drain(..surplus);
    }

    /// Reads the output until it ends.
    async fn read_all(&mut self) {
        while self.reader.is_some() {
            self.read().await;
        }
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.last);
        let lines: Vec<String> =
            text.lines().map(|line| format!("  {}", escape_unprintable(line))).collect();
        lines.join("\n")
    }
}

async fn failed(
    entry: &AgentCatalogEntry,
    error: &AcpError,
    process: &mut LaunchedProgram,
    errors: &mut ErrorTail,
) -> Failure {
    ended(entry.title(), error, process, errors).await
}

/// The failure of an agent. If the agent's process ended, the message contains its exit status.
async fn ended(
    agent: &str,
    error: &AcpError,
    process: &mut LaunchedProgram,
    errors: &mut ErrorTail,
) -> Failure {
    let mut message = format!("{}: {error}", escape_unprintable(agent));
    if error.ends_connection() {
        // The exit status of the process is more useful than the connection error.
        let all = async {
            errors.read_all().await;
            process.wait().await
        };
        if let Ok(Some(exit)) = timeout(END_TIME, all).await {
            message = format!("{} ended {}", escape_unprintable(agent), ending(&exit));
        }
    }
    let said = errors.text();
    if !said.is_empty() {
        message.push_str(&format!("; the end of its standard error:\n{said}"));
    }
    told(message)
}

fn ending(exit: &ab_core::process::ProcessExit) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => format!("with exit code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "without an exit code".to_owned(),
    }
}

fn told(message: String) -> Failure {
    Failure::from(Error::new(ErrorCode::ExecError, ErrorKind::CommandFailed, message))
}
