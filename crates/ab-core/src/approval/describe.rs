//! Describes a call for the person who decides: everything that the digest covers and that a person
//! can judge.
//!
//! Text of the caller, such as a command or a path, cannot look like a line of the description: the
//! second and later lines of such a text are indented, and no line of the description is.

use super::{ApprovalRequest, OwnedCall};
use crate::process::{
    ExecLimits, ExecRequest, HostDirectoryAccess, ProcessLifetime, StdinMode, TerminalSize,
};

impl ApprovalRequest {
    /// Describes the whole call and the rule that requires approval, in as many lines as necessary.
    /// Nothing is omitted or truncated.
    pub fn describe(&self) -> String {
        let mut text = self.call.describe();
        let rule = &self.rule;
        text.push_str(&format!("\n{} (rule {})\n", indented(&rule.reason), indented(&rule.rule)));
        if let Some(suggestion) = &rule.suggestion {
            text.push_str(&format!("instead: {}\n", indented(suggestion)));
        }
        text
    }
}

/// A text of the caller with its second and later lines indented. Other characters that end a line
/// are escaped.
fn indented(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        match c {
            '\n' => shown.push_str("\n  "),
            '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                shown.extend(c.escape_default());
            }
            c => shown.push(c),
        }
        shown
    })
}

impl OwnedCall {
    /// Describes what the call does. For a command, this is the command itself, followed by its
    /// directory, variables, input and limits.
    pub fn describe(&self) -> String {
        if let Some(request) = &self.request {
            return describe_command(request);
        }
        let mut text = self.verb.as_str().to_owned();
        if let Some(path) = &self.path {
            text.push_str(&format!(" {}", indented(&path.to_string())));
        }
        if let Some(to) = &self.to {
            text.push_str(&format!(" to {}", indented(&to.to_string())));
        }
        if self.recursive {
            text.push_str(", with everything below");
        }
        if let Some(size) = self.size {
            let unit = if size == 1 { "byte" } else { "bytes" };
            text.push_str(&format!(", {size} {unit}"));
        }
        text.push('\n');
        text
    }
}

fn describe_command(request: &ExecRequest) -> String {
    let ExecRequest {
        command,
        cwd,
        env,
        stdin,
        stdin_for_guards: declared_stdin,
        // This option does not affect what the command does.
        stderr: _,
        terminal,
        lifetime,
        limits,
        restrictions,
        mount_layout: _,
    } = request;
    let mut text = format!("{}\n", indented(&command.to_shell_line()));
    let mut line =
        |name: &str, value: &str| text.push_str(&format!("{name}: {}\n", indented(value)));
    if !cwd.is_root() {
        line("directory", &cwd.to_string());
    }
    for (name, value) in env {
        line("variable", &format!("{name}={value}"));
    }
    match (stdin, declared_stdin) {
        (StdinMode::Piped, Some(input)) => match std::str::from_utf8(input) {
            Ok(input) => line("standard input", &format!("\n{input}")),
            Err(_) => line("standard input", &format!("\n{}", input.escape_ascii())),
        },
        (StdinMode::Piped, None) => line("standard input", "sent while it runs"),
        (StdinMode::Closed, _) => {}
    }
    if let Some(TerminalSize { columns, rows }) = terminal {
        line("terminal", &format!("{columns}x{rows}"));
    }
    if *lifetime == ProcessLifetime::Detached {
        line("lifetime", "goes on after its caller has gone");
    }
    for (name, value) in limit_lines(limits) {
        line(name, &value);
    }
    for path in &restrictions.hidden {
        line("hidden", &path.to_string());
    }
    for path in &restrictions.read_only {
        line("read-only", &path.to_string());
    }
    for bind in &restrictions.host_directories {
        let access = match bind.access {
            HostDirectoryAccess::ReadOnly => "read-only",
            HostDirectoryAccess::ReadWrite => "read-write",
        };
        line("directory of the host", &format!("{} ({access})", bind.path));
    }
    text
}

fn limit_lines(limits: &ExecLimits) -> Vec<(&'static str, String)> {
    let ExecLimits { wall_time, cpu, memory, processes, file_size, open_files } = limits;
    let lines = [
        ("at most", wall_time.map(|time| format!("{time:?}"))),
        ("processor time", cpu.map(|time| format!("{time:?}"))),
        ("bytes of memory", memory.map(|count| count.to_string())),
        ("processes", processes.map(|count| count.to_string())),
        ("bytes of a file", file_size.map(|count| count.to_string())),
        ("open files", open_files.map(|count| count.to_string())),
    ];
    lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::TriggeringRule;
    use super::*;
    use crate::call::{Actor, Call, Verb};
    use crate::path::{PathParser, WsPath};
    use crate::process::Command;

    #[test]
    fn nothing_of_a_command_is_left_out() {
        let line = format!("echo {}; rm -r $X", "x".repeat(100_000));
        let mut request = ExecRequest::shell(&line);
        request.env.insert("LD_PRELOAD".to_owned(), "evil.so".to_owned());
        request.stdin = StdinMode::Piped;
        request.stdin_for_guards = Some("first\nsecond".into());
        request.limits.wall_time = Some(Duration::from_secs(9));
        let actor = Actor::default();
        let call = Call { request: Some(&request), ..Call::new(&actor, Verb::Exec) };
        let (rule, reason) = ("own.rule".to_owned(), "it may be wrong".to_owned());
        let suggestion = Some("write it out".to_owned());
        let asked = ApprovalRequest::new(&call, TriggeringRule { rule, reason, suggestion });
        let expect = format!(
            "{line}\nvariable: LD_PRELOAD=evil.so\nstandard input: \n  first\n  second\nat most: 9s\n\n\
             it may be wrong (rule own.rule)\ninstead: write it out\n"
        );
        assert_eq!(asked.describe(), expect);
    }

    /// Every text that a caller chooses, in a request for approval of a command.
    #[test]
    fn no_text_of_the_caller_looks_like_a_line_of_the_description() {
        let lies = ["\n", "\r\n", "\r", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"];
        for end in lies {
            let lie = format!("x{end}directory: scratch{end}at most: 1s");
            let path = PathParser::lenient().parse(&lie).unwrap();
            let mut request = ExecRequest::shell(&lie);
            request.cwd = path.clone();
            request.env.insert(lie.clone(), "1".to_owned());
            request.env.insert("NAME".to_owned(), lie.clone());
            request.stdin = StdinMode::Piped;
            request.stdin_for_guards = Some(lie.clone().into_bytes().into());
            request.restrictions.hidden.push(path.clone());
            request.restrictions.read_only.push(path.clone());
            let words = Command::Argv(vec!["rm".to_owned(), lie.clone()]);
            let of_words = ExecRequest { command: words, ..request.clone() };
            for request in [request, of_words] {
                let actor = Actor::default();
                let call = Call { request: Some(&request), ..Call::new(&actor, Verb::Exec) };
                let rule = TriggeringRule {
                    rule: lie.clone(),
                    reason: lie.clone(),
                    suggestion: Some(lie.clone()),
                };
                check_lines(&ApprovalRequest::new(&call, rule).describe());
            }
            let actor = Actor::default();
            let paths =
                Call { path: Some(&path), to: Some(&path), ..Call::new(&actor, Verb::Rename) };
            check_lines(&OwnedCall::from_call(&paths).describe());
        }
    }

    /// Checks that no line except those of the real directory claims to be one of the description.
    #[track_caller]
    fn check_lines(text: &str) {
        let ends = |c: char| {
            matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
        };
        let lies = text
            .split(ends)
            .filter(|line| *line == "directory: scratch" || line.starts_with("at most: 1s"));
        assert_eq!(lies.count(), 0, "{text}");
    }

    #[test]
    fn a_file_call_names_its_paths() {
        let actor = Actor::default();
        let path = WsPath::root();
        let call = Call { path: Some(&path), size: Some(3), ..Call::new(&actor, Verb::Write) };
        let text = OwnedCall::from_call(&call).describe();
        assert!(text.starts_with("write ") && text.ends_with(", 3 bytes\n"), "{text}");
    }
}
