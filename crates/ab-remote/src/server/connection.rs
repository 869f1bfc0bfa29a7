//! The russh handler of one connection.
//!
//! The handler must not wait for a command, a file or the client, because russh calls it from the
//! loop that also reads the socket. The only exception is the short time that a command usually
//! takes to start.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ab_core::environment::CodeLoadingEnvVariablePolicy;
use ab_core::process::ProcessControlMessage;
use ab_core::{Backend, NarrowOptions, Principal, PrincipalKind};
use russh::keys::Certificate;
use russh::server::{
    Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey,
};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Disconnect, Pty, Sig};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::{Commons, SentAway, SshServerSettings, Tasks, lock};
use crate::command::{self, CommandSlots, Deaths, Run, Terminal};
use crate::inbox::{Gauge, Inbox, MAX_UNREAD};
use crate::ledger::Caller;
use crate::outlet::Outlet;
use crate::process;
use crate::sftp::{self, Allowance, LinkOrder};
use crate::signal;
use crate::window_control::{HELD_WINDOW, Pace, WindowControl};
use crate::wire::frame;

/// How long each packet on a channel delays the connection while the channel has too many unread
/// bytes.
const PAUSE: Duration = Duration::from_millis(20);
/// How long to wait for the start of a command before the client gets an answer to its request.
/// After this time the server sends the answer even if the command has not started.
const HEAD_START: Duration = Duration::from_millis(5);
/// Maximum number of queued signals and terminal sizes for a command.
const CONTROLS: usize = 16;
/// Maximum number of environment variables that a client may set for a command.
const MAX_VARIABLES: usize = 256;
/// Maximum total number of bytes of these variables, including their names.
const MAX_ENVIRONMENT: usize = 256 * 1024;
/// Maximum total number of bytes of the variables on all channels of a connection that have not
/// started anything yet.
const MAX_ENVIRONMENTS: usize = 1024 * 1024;
/// Maximum length of a command line in bytes.
const MAX_LINE: usize = 1024 * 1024;
/// The command that is run when a client requests a shell.
const SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi";

/// Why the server ends a connection.
#[derive(Debug)]
pub(super) enum Failure {
    Protocol(russh::Error),
    /// The client sent more than the window of a channel allows.
    Flooded,
    /// The server has closed the maximum number of channels of one connection.
    UsedUp,
}

impl Failure {
    /// Whether the failure only means that the client disconnected without a close.
    pub(super) fn is_departure(&self) -> bool {
        matches!(
            self,
            Failure::Protocol(
                russh::Error::IO(_)
                    | russh::Error::HUP
                    | russh::Error::Disconnect
                    | russh::Error::ConnectionTimeout
                    | russh::Error::KeepaliveTimeout
                    | russh::Error::InactivityTimeout
            )
        )
    }
}

impl From<russh::Error> for Failure {
    fn from(error: russh::Error) -> Self {
        Failure::Protocol(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Protocol(error) => error.fmt(f),
            Failure::Flooded => write!(f, "more than {MAX_UNREAD} bytes wait to be read"),
            Failure::UsedUp => f.write_str("it has had its share of channels; connect again"),
        }
    }
}

type Done = Result<(), Failure>;

/// The russh handler of one connection, and the state of its client.
pub(super) struct Connection {
    backend: Backend,
    settings: Arc<SshServerSettings>,
    commons: Commons,
    tasks: Tasks,
    login: watch::Sender<bool>,
    gauge: Arc<Gauge>,
    window_control: WindowControl,
    allowance: Arc<Allowance>,
    caller: Arc<Caller>,
    lines: HashMap<ChannelId, Line>,
    commands: CommandSlots,
    /// The number of channels that the server closed before the client did.
    closed: usize,
    sent_away: SentAway,
}

/// A channel of a connection, before and after something was started on it.
enum Line {
    /// Nothing is running on the channel yet.
    Idle(Box<Idle>),
    Busy(Busy),
}

impl Line {
    fn runs_a_command(&self) -> bool {
        match self {
            Line::Idle(_) => false,
            Line::Busy(busy) => !busy.restful && !busy.task.is_finished(),
        }
    }

    /// Whether the task that serves the channel has ended. It has then sent the exit status.
    fn is_over(&self) -> bool {
        match self {
            Line::Idle(_) => false,
            Line::Busy(busy) => busy.task.is_finished(),
        }
    }

    fn is_restful(&self) -> bool {
        match self {
            Line::Idle(_) => true,
            Line::Busy(busy) => busy.restful,
        }
    }
}

struct Idle {
    half: ChannelWriteHalf<Msg>,
    env: BTreeMap<String, String>,
    /// The size of `env` in bytes.
    env_size: usize,
    terminal: Option<Terminal>,
}

impl Idle {
    /// Stores an environment variable. `room` is the number of bytes that the variables of the
    /// connection may still use. Returns `false` if a limit is exceeded.
    fn keep(&mut self, name: &str, value: &str, room: usize) -> bool {
        let before = self.env.get(name).map_or(0, |value| name.len() + value.len());
        let more = name.len() + value.len();
        let size = self.env_size - before + more;
        let known = self.env.contains_key(name);
        if size > MAX_ENVIRONMENT
            || more > room + before
            || (!known && self.env.len() >= MAX_VARIABLES)
        {
            return false;
        }
        self.env.insert(name.to_owned(), value.to_owned());
        self.env_size = size;
        true
    }
}

struct Busy {
    inbox: Arc<Inbox>,
    controls: mpsc::Sender<ProcessControlMessage>,
    task: AbortHandle,
    /// Whether the channel serves SFTP, which a client can start again on another connection
    /// without harm.
    restful: bool,
}

impl Connection {
    pub(super) fn new(
        backend: Backend,
        settings: Arc<SshServerSettings>,
        commons: Commons,
        tasks: Tasks,
        login: watch::Sender<bool>,
        sent_away: SentAway,
    ) -> Self {
        Self {
            backend,
            commands: CommandSlots::new(settings.max_commands),
            settings,
            commons,
            tasks,
            login,
            gauge: Arc::default(),
            window_control: WindowControl::default(),
            allowance: Arc::default(),
            caller: Arc::default(),
            lines: HashMap::new(),
            closed: 0,
            sent_away,
        }
    }

    /// Disconnects the client and sends it the reason.
    fn send_away(&self, session: &mut Session, why: Failure) -> Done {
        session.disconnect(Disconnect::ByApplication, &why.to_string(), "en")?;
        // The first reason is kept.
        let _ = self.sent_away.set(why);
        Ok(())
    }

    fn idle(&mut self, channel: ChannelId) -> Option<&mut Idle> {
        match self.lines.get_mut(&channel)? {
            Line::Idle(idle) => Some(idle),
            Line::Busy(_) => None,
        }
    }

    fn busy(&self, channel: ChannelId) -> Option<&Busy> {
        match self.lines.get(&channel)? {
            Line::Idle(_) => None,
            Line::Busy(busy) => Some(busy),
        }
    }

    /// Starts a command or a subsystem on an idle channel. Returns `false` if something is already
    /// running on the channel.
    fn occupy(&mut self, channel: ChannelId, session: &Session, what: What) -> bool {
        let Some(Line::Idle(_)) = self.lines.get(&channel) else { return false };
        let Some(Line::Idle(idle)) = self.lines.remove(&channel) else { return false };
        let inbox = Arc::new(Inbox::new(self.gauge.clone()));
        let (controls, wishes) = mpsc::channel(CONTROLS);
        let outlet = Outlet::new(idle.half, session.handle());
        let backend = self.backend.clone();
        let restful = matches!(what, What::Sftp);
        let mut tasks = lock(&self.tasks);
        tasks.sweep();
        let task = match what {
            What::Command(line, started) => {
                let deaths = Deaths::of(session.remote_sshid());
                let (env, terminal) = (idle.env, idle.terminal);
                let run = Run { line, env, terminal, deaths, started };
                tasks.commands.spawn(command::run(
                    backend,
                    run,
                    self.commands.clone(),
                    inbox.clone(),
                    outlet,
                    wishes,
                ))
            }
            What::Sftp => {
                let links = LinkOrder::of(session.remote_sshid());
                let session = sftp::Session::new(
                    backend,
                    self.allowance.clone(),
                    links,
                    (self.commons.ledger.clone(), self.caller.clone()),
                    self.commons.staging.clone(),
                    self.commons.making.clone(),
                );
                tasks.files.spawn(sftp::serve(session, inbox.clone(), outlet))
            }
            What::Process => {
                let caller = self.caller.clone();
                let slots = self.commands.clone();
                tasks.commands.spawn(process::serve(backend, caller, slots, inbox.clone(), outlet))
            }
        };
        drop(tasks);
        self.lines.insert(channel, Line::Busy(Busy { inbox, controls, task, restful }));
        true
    }

    /// Starts a command, and answers the client's request when the command is running. If the
    /// answer were sent earlier, the client would send more data, and this would delay the start.
    /// The whole connection waits during the start. Therefore the answer is sent early if the start
    /// takes long, for example because of an approval, or if other commands are running.
    async fn command(&mut self, channel: ChannelId, session: &mut Session, line: &str) -> Done {
        let alone = !self.lines.values().any(Line::runs_a_command);
        let (starts, started) = oneshot::channel();
        let taken = self.occupy(channel, session, What::Command(line.to_owned(), starts));
        if taken && alone {
            // The wait ends when the task of the command drops the sender.
            let _ = timeout(HEAD_START, started).await;
        }
        answer(session, channel, taken)
    }

    /// Whether the unread input of a channel, or of other channels, limits the window that the
    /// channel gets.
    fn pace(&self, channel: ChannelId) -> Pace {
        let is_held = |line: &Line| match line {
            Line::Idle(_) => false,
            Line::Busy(busy) => busy.inbox.is_held(),
        };
        match self.lines.get(&channel) {
            _ if self.gauge.is_full() => Pace::Full,
            Some(line) if is_held(line) => Pace::Held,
            _ if self.lines.values().any(is_held) => Pace::AmongHeld,
            _ => Pace::Free,
        }
    }

    /// Accepts or refuses a user who has proved their name. If the user is accepted, the name
    /// becomes the actor of the connection. If the server accepts any name, the name proves
    /// nothing. The connection then keeps the actor of the handle, which the surface in front of
    /// this server has set.
    fn let_in_as(&mut self, user: &str, yes: bool) -> Auth {
        if yes && !self.settings.access.without_credentials() {
            let person = Principal::new(PrincipalKind::Person, user);
            match self.backend.narrow(NarrowOptions::for_actor(person)) {
                Ok(backend) => self.backend = backend,
                // Narrowing fails only if the workspace was destroyed. Refuse the login.
                Err(_) => return self.let_in(false),
            }
        }
        self.let_in(yes)
    }

    /// The answer to a login attempt. A refusal offers all methods again, because by default russh
    /// would offer each method only once.
    fn let_in(&self, yes: bool) -> Auth {
        let methods = Some(self.settings.access.methods());
        if yes {
            Auth::Accept
        } else {
            Auth::Reject { proceed_with_methods: methods, partial_success: false }
        }
    }
}

impl Drop for Connection {
    /// Ends the input of all channels, because no more requests will arrive. Requests that are
    /// running are completed.
    fn drop(&mut self) {
        for line in self.lines.values() {
            if let Line::Busy(busy) = line {
                busy.inbox.end();
            }
        }
    }
}

/// What runs on a channel.
enum What {
    /// A command line. The sender is dropped when the command has started or could not be started.
    Command(String, oneshot::Sender<()>),
    Sftp,
    Process,
}

/// Answers a request on a channel.
fn answer(session: &mut Session, channel: ChannelId, yes: bool) -> Done {
    if yes {
        session.channel_success(channel)?;
    } else {
        session.channel_failure(channel)?;
    }
    Ok(())
}

impl Handler for Connection {
    type Error = Failure;

    async fn auth_none(&mut self, _user: &str) -> Result<Auth, Failure> {
        Ok(self.let_in(self.settings.access.without_credentials()))
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Failure> {
        let known = self.settings.access.by_password(user, password);
        Ok(self.let_in_as(user, known))
    }

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Failure> {
        let known = self.settings.access.by_key(user, offer.public_key, offer.algorithm);
        Ok(self.let_in(known))
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Failure> {
        let known = self.settings.access.by_key(user, key.public_key, key.algorithm);
        Ok(self.let_in_as(user, known))
    }

    async fn auth_openssh_certificate(
        &mut self,
        _user: &str,
        _certificate: &Certificate,
    ) -> Result<Auth, Failure> {
        // Certificates are not accepted, because no certificate authority is trusted.
        Ok(self.let_in(self.settings.access.without_credentials()))
    }

    async fn authentication_banner(&mut self) -> Result<Option<String>, Failure> {
        Ok(self.settings.banner.clone())
    }

    async fn auth_succeeded(&mut self, _session: &mut Session) -> Done {
        self.login.send_replace(true);
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Done {
        // Remove finished channels here, because russh does not report the client's answer if this
        // side closes a channel.
        let before = self.lines.len();
        self.lines.retain(|_, line| !line.is_over());
        self.closed += before - self.lines.len();
        let used_up = self.closed >= self.settings.max_server_closed_channels;
        if used_up && self.lines.values().all(Line::is_restful) {
            return self.send_away(session, Failure::UsedUp);
        }
        if used_up || self.lines.len() >= self.settings.max_channels {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let id = channel.id();
        // The read half is not needed, because russh passes incoming data to the methods below.
        let (_, half) = channel.split();
        let idle = Idle { half, env: BTreeMap::new(), env_size: 0, terminal: None };
        self.lines.insert(id, Line::Idle(Box::new(idle)));
        reply.accept().await;
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Done {
        if let Some(Line::Busy(busy)) = self.lines.remove(&channel) {
            busy.task.abort();
        }
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, _session: &mut Session) -> Done {
        if let Some(busy) = self.busy(channel) {
            busy.inbox.end();
        }
        Ok(())
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], session: &mut Session) -> Done {
        let Some(busy) = self.busy(channel) else { return Ok(()) };
        if !busy.task.is_finished() {
            busy.inbox.push(data);
        }
        if self.gauge.unread() > MAX_UNREAD {
            return self.send_away(session, Failure::Flooded);
        }
        if data.len() <= HELD_WINDOW as usize && busy.inbox.is_held() {
            // Many small packets cost processing time and little memory. Wait, so that the client
            // cannot send them faster than this.
            let _ = timeout(PAUSE, busy.inbox.room()).await;
        }
        Ok(())
    }

    fn adjust_window(&mut self, channel: ChannelId, granted: u32) -> u32 {
        let pace = self.pace(channel);
        self.window_control.next(channel.into(), granted, pace, Instant::now())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Done {
        let idle = self.idle(channel);
        let yes = idle.is_some();
        if let Some(idle) = idle {
            let size = command::size(columns, rows);
            idle.terminal = Some(Terminal { kind: term.to_owned(), size });
        }
        answer(session, channel, yes)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single_connection: bool,
        _protocol: &str,
        _cookie: &str,
        _screen: u32,
        session: &mut Session,
    ) -> Done {
        answer(session, channel, false)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Done {
        let size = |line: &Line| match line {
            Line::Idle(idle) => idle.env_size,
            Line::Busy(_) => 0,
        };
        let kept: usize = self.lines.values().map(size).sum();
        let room = MAX_ENVIRONMENTS.saturating_sub(kept);
        // Store a variable even if it loads code. The variable is checked together with the command
        // when the command starts, and a command without isolation is then refused. Refusing the
        // variable here would have no visible effect, because the client of OpenSSH does not wait
        // for the answer.
        let taken = ab_core::environment::check_env_variable(
            name,
            value,
            CodeLoadingEnvVariablePolicy::Allowed,
        )
        .is_ok()
            && self.idle(channel).is_some_and(|idle| idle.keep(name, value, room));
        answer(session, channel, taken)
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Done {
        self.command(channel, session, SHELL).await
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        line: &[u8],
        session: &mut Session,
    ) -> Done {
        let line = std::str::from_utf8(line).ok().filter(|line| line.len() <= MAX_LINE);
        match line {
            Some(line) => self.command(channel, session, line).await,
            None => answer(session, channel, false),
        }
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Done {
        let started = match name {
            "sftp" => self.occupy(channel, session, What::Sftp),
            frame::PROCESS_SUBSYSTEM => self.occupy(channel, session, What::Process),
            _ => false,
        };
        answer(session, channel, started)
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        columns: u32,
        rows: u32,
        _width: u32,
        _height: u32,
        session: &mut Session,
    ) -> Done {
        let size = command::size(columns, rows);
        let taken = match self.lines.get_mut(&channel) {
            Some(Line::Idle(idle)) => {
                idle.terminal.as_mut().map(|terminal| terminal.size = size).is_some()
            }
            // If the queue is full, a change of the terminal size is dropped.
            Some(Line::Busy(busy)) => {
                busy.controls.try_send(ProcessControlMessage::Resize(size)).is_ok()
            }
            None => false,
        };
        answer(session, channel, taken)
    }

    async fn signal(&mut self, channel: ChannelId, signal: Sig, session: &mut Session) -> Done {
        let number = signal::number(&signal);
        let taken = self.busy(channel).zip(number).is_some_and(|(busy, number)| {
            busy.controls.try_send(ProcessControlMessage::Signal(number)).is_ok()
        });
        answer(session, channel, taken)
    }
}
