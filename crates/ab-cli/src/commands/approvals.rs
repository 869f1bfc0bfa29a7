//! `approvals`: shows the questions that wait for a person, and answers them.

use ab_api::{
    Approval, ApprovalDecision, ApprovalStatus, ApproveOrDeny, DecisionChannel, SubjectDescriber,
    Time,
};
use agent_backend::ServeClient;
use agent_backend::serve_client::ApprovalQuery;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::session::age;
use super::{CliCommand, RunningCommand};
use crate::approval_ref::ApprovalRef;
use crate::failure::Failure;
use crate::follow::lines::decider_text;
use crate::server::ServerFlags;
use crate::session_ref::SessionRef;
use crate::signals::Signals;
use crate::terminal::{Format, Terminal, talk, without_controls};

/// Maximum number of characters of a title in a table.
const MAX_TITLE: usize = 60;

/// Show and answer approvals
///
/// An approval is a question that a person must answer. An agent, a run or another program asks it before it does
/// something that needs permission.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct ApprovalsCommand {
    #[command(subcommand)]
    act: ApprovalsAct,

    /// Print JSON; for watch, one value in each line
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Subcommand)]
enum ApprovalsAct {
    /// List approvals, the newest first
    #[command(alias = "ls")]
    List(ListApprovals),
    /// Show one approval in full
    Show(OneApproval),
    /// Approve an action, for this one time
    Approve(DecideApproval),
    /// Deny an action
    Deny(DecideApproval),
    /// Print open approvals, then new ones and decisions, until Ctrl-C
    Watch(WatchApprovals),
}

#[derive(Args, Debug)]
struct ListApprovals {
    /// Only approvals with this status
    #[arg(long, value_enum, default_value = "pending", value_name = "STATUS")]
    status: ListedStatus,

    /// Only approvals of the session with this ID
    #[arg(long, value_name = "SESSION")]
    session: Option<SessionRef>,

    /// Number of the page
    #[arg(long, default_value = "1", value_name = "N", value_parser = super::exec::amount::number(1..=u32::MAX))]
    page: u32,

    /// Number of approvals on a page
    #[arg(long, default_value = "20", value_name = "N", value_parser = super::exec::amount::number(1..=200))]
    per_page: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListedStatus {
    Pending,
    Approved,
    Denied,
    Expired,
    All,
}

impl ListedStatus {
    fn status(self) -> Option<ApprovalStatus> {
        match self {
            ListedStatus::Pending => Some(ApprovalStatus::Pending),
            ListedStatus::Approved => Some(ApprovalStatus::Approved),
            ListedStatus::Denied => Some(ApprovalStatus::Denied),
            ListedStatus::Expired => Some(ApprovalStatus::Expired),
            ListedStatus::All => None,
        }
    }
}

#[derive(Args, Debug)]
struct OneApproval {
    /// ID of the approval, or its first characters
    #[arg(value_name = "APPROVAL")]
    id: ApprovalRef,
}

#[derive(Args, Debug)]
struct DecideApproval {
    /// ID of the approval, or its first characters
    #[arg(value_name = "APPROVAL")]
    id: ApprovalRef,

    /// Reason for the decision; the agent receives it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Args, Debug)]
struct WatchApprovals {
    /// Only approvals of the session with this ID
    #[arg(long, value_name = "SESSION")]
    session: Option<SessionRef>,
}

impl CliCommand for ApprovalsCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn handles_signals(&self) -> bool {
        matches!(self.act, ApprovalsAct::Watch(_))
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(command: ApprovalsCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = command.server.client()?;
    let server_flags = command.server.repeated();
    match command.act {
        ApprovalsAct::List(list) => show_list(&client, list, terminal).await,
        ApprovalsAct::Show(one) => {
            let id = one.id.find(&client).await?;
            show_one(&client.approval(id).await?, terminal)
        }
        ApprovalsAct::Approve(one) => decide(&client, one, ApproveOrDeny::Approve, terminal).await,
        ApprovalsAct::Deny(one) => decide(&client, one, ApproveOrDeny::Deny, terminal).await,
        ApprovalsAct::Watch(watched) => watch(&client, watched, &server_flags, terminal).await,
    }
}

async fn decide(
    client: &ServeClient,
    one: DecideApproval,
    decision: ApproveOrDeny,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let id = one.id.find(client).await?;
    let via = Some(DecisionChannel::Cli);
    let decision = ApprovalDecision { reason: one.reason, via, ..decision.into() };
    let approval = client.decide_approval(id, &decision).await?;
    match terminal.format() {
        Format::Json => terminal.value(&json!(approval)),
        Format::Text => {
            let line = event_line(&approval);
            terminal.line(&without_controls(&line))
        }
    }
}

async fn show_list(
    client: &ServeClient,
    list: ListApprovals,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let session_id = match &list.session {
        Some(session) => Some(session.find(client).await?),
        None => None,
    };
    let query = ApprovalQuery {
        status: list.status.status(),
        session_id,
        page: Some(list.page),
        per_page: Some(list.per_page),
    };
    let page = client.approvals(&query).await?;
    if terminal.format() == Format::Json {
        return terminal.value(&json!(page));
    }
    if page.items.is_empty() {
        let is_inbox = list.status == ListedStatus::Pending && list.page == 1;
        let text = if is_inbox { "no approvals are open" } else { "no approval matches" };
        terminal.note(text);
        return Ok(());
    }
    for line in table(&page.items, Time::now()).lines() {
        terminal.line(&without_controls(line))?;
    }
    if let Some(next) = page.next_page {
        let (shown, total) = (page.items.len(), page.total);
        terminal.note(&format!("{shown} of {total} approvals; for more, pass --page {next}"));
    }
    Ok(())
}

fn show_one(approval: &Approval, terminal: &mut Terminal) -> Result<(), Failure> {
    if terminal.format() == Format::Json {
        return terminal.value(&json!(approval));
    }
    terminal.bytes(without_controls(&details(approval)).as_bytes())
}

/// Prints every change of an approval until the command is interrupted.
async fn watch(
    client: &ServeClient,
    watched: WatchApprovals,
    server_flags: &str,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let session_id = match &watched.session {
        Some(session) => Some(session.find(client).await?),
        None => None,
    };
    let status = Some(ApprovalStatus::Pending);
    let query = ApprovalQuery { status, session_id, ..ApprovalQuery::default() };
    let mut changes = client.follow_approvals(&query);
    let mut signals = Signals::watch();
    loop {
        tokio::select! {
            change = changes.next() => {
                let Some(approval) = change? else { return Ok(()) };
                match terminal.format() {
                    Format::Json => terminal.line(&json!(approval).to_string())?,
                    // In text output, the use of a decision is not printed.
                    Format::Text if approval.used_at.is_some() => {}
                    Format::Text => {
                        let line = event_line(&approval);
                        terminal.line(&without_controls(&line))?;
                    }
                }
                terminal.finish()?;
            }
            exit = signals.next() => {
                terminal.finish()?;
                talk(&format!("\nlist open approvals: agent-backend approvals list{server_flags}\n"));
                return Err(Failure::Told(exit));
            }
        }
    }
}

/// One line about the state of an approval.
fn event_line(approval: &Approval) -> String {
    let Approval { id, status, subject, .. } = approval;
    let mut line = format!("{id} {}", status.as_str());
    if let Some(by) = &approval.decided_by {
        line.push_str(&format!(" by {}", decider_text(by)));
    }
    line.push_str(&format!(": {}", flat(&subject.title)));
    if let Some(reason) = &approval.reason {
        line.push_str(&format!(" ({})", flat(reason)));
    }
    line
}

/// Approvals as a table for people.
fn table(approvals: &[Approval], now: Time) -> String {
    let mut rows = vec![["APPROVAL", "STATUS", "FOR", "AGE", "ASKS"].map(str::to_owned)];
    rows.extend(approvals.iter().map(|approval| {
        let subject = &approval.subject;
        let title = flat(&subject.title);
        let title = match title.char_indices().nth(MAX_TITLE) {
            Some((end, _)) => format!("{}…", &title[..end]),
            None => title,
        };
        [
            approval.id.to_string(),
            approval.status.as_str().to_owned(),
            match &subject.asked_by {
                Some(caller) => format!("{} by {}", asker_text(approval), flat(caller)),
                None => asker_text(approval),
            },
            age(approval.created_at, now),
            title,
        ]
    }));
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// One approval as text for people: its fields, then its full subject.
fn details(approval: &Approval) -> String {
    let subject = &approval.subject;
    let mut rows = vec![
        ("approval", approval.id.to_string()),
        ("status", approval.status.as_str().to_owned()),
        ("asks", flat(&subject.title)),
        ("for", asker_text(approval)),
    ];
    let time = |time: Option<Time>| time.map(|time| time.to_string());
    let pending_until = approval.expires_at.filter(|_| approval.status == ApprovalStatus::Pending);
    let optional = [
        ("asked by", caller_text(approval)),
        ("action", subject.action.as_deref().map(flat)),
        ("digest", subject.digest.as_deref().map(flat)),
        ("created", Some(approval.created_at.to_string())),
        ("expires", time(pending_until)),
        ("decided", time(approval.decided_at)),
        ("by", approval.decided_by.as_ref().map(decider_text)),
        ("reason", approval.reason.as_deref().map(flat)),
        ("answered", time(approval.used_at)),
    ];
    rows.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let mut text: String =
        rows.iter().map(|(name, value)| format!("{name:<11} {value}\n")).collect();
    if let Some(detail) = &subject.detail {
        let heading = match subject.described_by {
            SubjectDescriber::Server => "",
            SubjectDescriber::Agent => "the agent's description:\n",
            SubjectDescriber::Program => "the program's description:\n",
        };
        text.push_str(&format!("\n{heading}"));
        // The lines are indented, so that none looks like one of the fields.
        for line in without_controls(detail).lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    if subject.is_cut {
        text.push_str("the text is incomplete, so it can only be denied\n");
    }
    text
}

/// Describes the session, space or program that waits for the decision.
fn asker_text(approval: &Approval) -> String {
    let session = approval.session_id.map(|id| format!("session {id}"));
    let run = approval.run_id.map(|id| format!("run {id}"));
    let space = approval.space_id.map(|id| format!("space {id}"));
    let program = approval.requester.as_ref().map(|it| format!("program {}", flat(&it.name)));
    session.or(run).or(space).or(program).unwrap_or_default()
}

/// The caller of the server whose request needs the approval.
fn caller_text(approval: &Approval) -> Option<String> {
    let program = approval.requester.as_ref().map(|requester| &requester.principal);
    program.or(approval.subject.asked_by.as_ref()).map(|caller| flat(caller))
}

/// A text on one line. Control characters are escaped even if the output is not a terminal, because
/// a pipe may lead to one.
fn flat(text: &str) -> String {
    without_controls(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ab_api::{ApprovalDecider, ApprovalRequester, ApprovalSubject, DeciderKind};

    use super::*;

    fn approval() -> Approval {
        let session_id = Some("01HVZ6K9T1N8S6M3V3Q3F0X5B7".parse().unwrap());
        let subject = ApprovalSubject {
            title: "Run rm -r\nbuild".to_owned(),
            action: Some("execute".to_owned()),
            described_by: SubjectDescriber::Agent,
            digest: Some("abc".to_owned()),
            ..ApprovalSubject::default()
        };
        let subject = subject.with_detail("rm -r \\\n  build".to_owned());
        let time = "2026-01-31T12:00:00Z".parse().unwrap();
        let id = "01HVZ6K9T1N8S6M3V3Q3F0X5B8".parse().unwrap();
        let approval = Approval { id, session_id, ..Approval::new_pending(subject, time) };
        approval.expiring_after(Duration::from_secs(60))
    }

    #[test]
    fn approvals_are_a_table() {
        let now = "2026-01-31T14:30:00Z".parse().unwrap();
        let expect = "\
APPROVAL                    STATUS   FOR                                 AGE  ASKS
01HVZ6K9T1N8S6M3V3Q3F0X5B8  pending  session 01HVZ6K9T1N8S6M3V3Q3F0X5B7  2h   Run rm -r build
";
        assert_eq!(table(&[approval()], now), expect);
    }

    #[test]
    fn a_command_cannot_hide_a_part_of_itself() {
        let subject = ApprovalSubject {
            title: "rm -rf precious # \rls -la".to_owned(),
            ..ApprovalSubject::default()
        };
        let subject =
            subject.with_detail("rm a # \u{1b}[2K\rls\r\nvariable: A=\u{202e}".to_owned());
        let asked = Approval::new_pending(subject, Time::now());
        let shown = without_controls(&details(&asked)).into_owned();
        for expect in [
            "asks        rm -rf precious # \\rls -la\n",
            "rm a # \\u{1b}[2K\\rls\\r\n",
            "variable: A=\\u{202e}\n",
        ] {
            assert!(shown.contains(expect), "{expect}\n{shown}");
        }
        assert!(event_line(&asked).contains("precious # \\rls -la"), "{}", event_line(&asked));
    }

    #[test]
    fn no_text_of_the_asker_looks_like_a_field() {
        let lie = "x\nstatus      approved\n\nby          admin";
        let requester = ApprovalRequester { principal: lie.to_owned(), name: lie.to_owned() };
        let subject = ApprovalSubject {
            title: lie.to_owned(),
            action: Some(lie.to_owned()),
            digest: Some(lie.to_owned()),
            described_by: SubjectDescriber::Program,
            ..ApprovalSubject::default()
        };
        let asked = Approval {
            requester: Some(requester),
            reason: Some(lie.to_owned()),
            ..Approval::new_pending(subject.with_detail(lie.to_owned()), Time::now())
        };
        let shown = details(&asked);
        let fields =
            shown.lines().filter(|line| line.starts_with("status") || line.starts_with("by "));
        assert_eq!(fields.collect::<Vec<_>>(), ["status      pending"], "{shown}");
    }

    #[test]
    fn an_approval_shows_everything_that_it_is_about() {
        let expect = "\
approval    01HVZ6K9T1N8S6M3V3Q3F0X5B8
status      pending
asks        Run rm -r build
for         session 01HVZ6K9T1N8S6M3V3Q3F0X5B7
action      execute
digest      abc
created     2026-01-31T12:00:00Z
expires     2026-01-31T12:01:00Z

the agent's description:
  rm -r \\
    build
";
        assert_eq!(details(&approval()), expect);
        let requester = ApprovalRequester {
            principal: "api-key:ci".to_owned(),
            name: "agent:chat-1".to_owned(),
        };
        let of_program = Approval { session_id: None, requester: Some(requester), ..approval() };
        let shown = details(&of_program);
        assert!(shown.contains("\nfor         program agent:chat-1\n"), "{shown}");
        assert!(shown.contains("\nasked by    api-key:ci\n"), "{shown}");
        let by = ApprovalDecider {
            kind: DeciderKind::Person,
            name: "admin".to_owned(),
            via: Some(DecisionChannel::Cli),
        };
        let subject = ApprovalSubject {
            asked_by: Some("space-agent:spc_1".to_owned()),
            ..approval().subject
        };
        let of_caller = Approval { subject, ..approval() };
        let shown = details(&of_caller);
        assert!(shown.contains("\nasked by    space-agent:spc_1\n"), "{shown}");
        let listed = table(&[of_caller], Time::now());
        assert!(listed.contains("0X5B7 by space-agent:spc_1 "), "{listed}");
        let reason = Some("not today".to_owned());
        let status = ApprovalStatus::Denied;
        let denied = Approval { status, decided_by: Some(by), reason, ..approval() };
        let expect =
            "01HVZ6K9T1N8S6M3V3Q3F0X5B8 denied by admin via cli: Run rm -r build (not today)";
        assert_eq!(event_line(&denied), expect);
    }
}
