//! The help texts. `-h` shows the most important flags and an example, and `--help` shows
//! everything.

use clap::Command;

/// The command, the flags that `-h` shows (`None` for all), and the example.
type ShortHelp = (&'static str, Option<&'static [&'static str]>, &'static str);

/// The content of `-h` for each command. If the example is empty, the command's own example is
/// used.
const SHORT_HELP: &[ShortHelp] = &[
    ("exec", Some(&["pty", "detach", "env", "timeout", "network"]), ""),
    ("job", Some(&["json", "root", "remote"]), ""),
    ("job list", Some(&[]), ""),
    ("job logs", Some(&["follow"]), ""),
    ("job attach", Some(&[]), ""),
    ("job wait", Some(&["timeout"]), ""),
    ("job kill", Some(&["signal"]), ""),
    ("mcp", Some(&["root", "isolation", "network", "read_only", "remote"]), ""),
    ("daemon", Some(&["root_dir", "host", "port", "auth_token_file", "network"]), ""),
    ("doctor", Some(&["root", "json", "remote"]), ""),
    ("policy check", Some(&["profile", "rules", "isolation"]), ""),
    ("policy rules", None, "agent-backend policy rules --profile strict"),
    ("policy test", None, "agent-backend policy test team.toml"),
    ("fs", Some(&["json", "root", "remote"]), ""),
    ("fs ls", Some(&["long", "recursive"]), "agent-backend fs ls -l src"),
    ("fs tree", Some(&["depth", "exclude"]), "agent-backend fs tree -L 2"),
    ("fs glob", Some(&["exclude", "no_ignore"]), "agent-backend fs glob 'src/**/*.{c,h}'"),
    (
        "fs grep",
        Some(&["regex", "ignore_case", "files_with_matches", "context"]),
        "agent-backend fs grep 'fn main' src",
    ),
    ("fs cat", Some(&["offset", "limit", "number"]), "agent-backend fs cat -n src/main.rs"),
    (
        "fs write",
        Some(&["content", "create_new", "expect"]),
        "echo hello | agent-backend fs write notes/a.txt",
    ),
    (
        "fs edit",
        Some(&["old", "new", "all", "dry_run"]),
        "agent-backend fs edit a.txt --old red --new blue",
    ),
    ("fs diff", Some(&["name_only", "stat"]), "agent-backend fs diff old.toml new.toml"),
    ("fs cp", Some(&["recursive", "force"]), "agent-backend fs cp -r src backup"),
    ("fs mv", Some(&["force"]), "agent-backend fs mv old.txt new.txt"),
    ("fs rm", Some(&["recursive", "force"]), "agent-backend fs rm -r build"),
    ("fs get", Some(&["force"]), ""),
    ("fs put", Some(&["force"]), ""),
    ("fs mkdir", Some(&[]), "agent-backend fs mkdir src/bin"),
    ("fs stat", None, "agent-backend fs stat src/main.rs"),
    ("fs touch", None, "agent-backend fs touch empty.txt"),
    (
        "run",
        Some(&["root", "space", "policy"]),
        "agent-backend run operations.json --root ./project",
    ),
    ("run show", Some(&[]), "agent-backend run show run_01…"),
    ("run resume", Some(&["deny", "reason"]), "agent-backend run resume run_01…"),
    ("run cancel", Some(&[]), "agent-backend run cancel run_01…"),
    ("space", Some(&["json", "server"]), "agent-backend space list"),
    (
        "space create",
        Some(&["name", "policy", "copy", "ttl"]),
        "agent-backend space create --name demo",
    ),
    ("space list", Some(&[]), "agent-backend space list --json"),
    ("space show", Some(&[]), "agent-backend space show spc_01…"),
    ("space token", Some(&["list", "revoke"]), "agent-backend space token spc_01… > agent.token"),
    ("space rm", Some(&[]), "agent-backend space rm spc_01…"),
    (
        "serve",
        Some(&["config", "data_dir", "host", "port", "root"]),
        "agent-backend serve --port 0 --data-dir ./state",
    ),
    (
        "server",
        Some(&["host", "port", "token_file", "no_token", "root", "isolation"]),
        "agent-backend server --no-token --isolation auto",
    ),
    ("webui", Some(&["no_open", "config", "data_dir", "port"]), "agent-backend webui"),
    (
        "task",
        Some(&["repo", "agent", "delivery", "network", "follow", "server"]),
        "agent-backend task 'Fix the failing test' --agent claude --follow",
    ),
    ("session", Some(&["json", "server"]), "agent-backend session list"),
    ("session list", Some(&["status"]), "agent-backend session list --status running"),
    ("session get", Some(&[]), "agent-backend session get 01JZ7Q…"),
    ("session events", Some(&["follow", "approve"]), "agent-backend session events -f 01JZ7Q…"),
    ("session logs", Some(&["follow", "tail"]), "agent-backend session logs -f 01JZ7Q…"),
    ("session audit", Some(&[]), "agent-backend session audit 01JZ7Q…"),
    ("session diff", Some(&[]), "agent-backend session diff 01JZ7Q… > changes.diff"),
    ("session continue", Some(&["follow", "approve"]), "agent-backend session continue 01JZ7Q…"),
    (
        "session prompt",
        Some(&["follow", "approve"]),
        "agent-backend session prompt 01JZ7Q… 'Add a test'",
    ),
    ("session prompts", Some(&[]), "agent-backend session prompts 01JZ7Q…"),
    ("session compare", Some(&[]), "agent-backend session compare 01JZ7Q…"),
    ("session withdraw", Some(&[]), "agent-backend session withdraw 01JZ7Q… 2"),
    ("session finish", Some(&[]), "agent-backend session finish 01JZ7Q…"),
    ("session run", Some(&["print"]), "agent-backend session run 01JZ7Q… vscode"),
    ("session pause", Some(&[]), "agent-backend session pause 01JZ7Q…"),
    ("session resume", Some(&[]), "agent-backend session resume 01JZ7Q…"),
    ("session stop", Some(&[]), "agent-backend session stop 01JZ7Q…"),
    ("session cancel", Some(&[]), "agent-backend session cancel 01JZ7Q…"),
    (
        "draft",
        Some(&["json", "server"]),
        "agent-backend draft create 'Fix the login' --agent goose",
    ),
    (
        "draft create",
        Some(&["repo", "agent", "file"]),
        "agent-backend draft create 'Fix the login' --repo ./shop",
    ),
    ("draft list", Some(&[]), "agent-backend draft list"),
    ("draft show", Some(&[]), "agent-backend draft show draft-01…"),
    (
        "draft update",
        Some(&["repo", "agent", "file"]),
        "agent-backend draft update draft-01… --agent goose",
    ),
    ("draft start", Some(&[]), "agent-backend draft start draft-01…"),
    ("draft rm", Some(&[]), "agent-backend draft rm draft-01…"),
    ("remote", Some(&["json", "server"]), "agent-backend remote agents"),
    ("remote agents", Some(&[]), "agent-backend remote agents"),
    ("remote runtimes", Some(&[]), "agent-backend remote runtimes"),
    ("remote executors", Some(&[]), "agent-backend remote executors"),
    ("remote projects", Some(&["tenant", "project"]), "agent-backend remote projects"),
    ("remote repos", Some(&["tenant", "project"]), "agent-backend remote repos --project shop"),
    (
        "remote import",
        Some(&["tenant", "project"]),
        "agent-backend remote import ./shop --project shop",
    ),
    ("remote branches", Some(&[]), "agent-backend remote branches ./shop"),
    ("remote workspaces", Some(&["status"]), "agent-backend remote workspaces --status kept"),
    ("remote workspace", Some(&[]), "agent-backend remote workspace show 01…"),
    ("remote workspace show", Some(&[]), "agent-backend remote workspace show 01…"),
    ("key", Some(&["json", "server"]), "agent-backend key create ci > ci.key"),
    ("key create", Some(&[]), "agent-backend key create ci > ci.key"),
    ("key list", Some(&[]), "agent-backend key list"),
    ("key revoke", Some(&[]), "agent-backend key revoke ci"),
    ("approvals", Some(&["json", "server"]), "agent-backend approvals list"),
    ("approvals list", Some(&["status", "session"]), "agent-backend approvals list --status all"),
    ("approvals show", Some(&[]), "agent-backend approvals show 01JZ7Q…"),
    ("approvals approve", Some(&["reason"]), "agent-backend approvals approve 01JZ7Q…"),
    (
        "approvals deny",
        Some(&["reason"]),
        "agent-backend approvals deny 01JZ7Q… --reason 'too broad'",
    ),
    ("approvals watch", Some(&[]), "agent-backend approvals watch"),
    ("wait", Some(&["timeout", "json", "server"]), "agent-backend wait 01JZ7Q… --timeout 10m"),
    ("cleanup", Some(&["dry_run", "json", "server"]), "agent-backend cleanup --dry-run"),
    ("backup", Some(&["data_dir"]), "agent-backend backup ab.tar.gz"),
    ("restore", Some(&["data_dir"]), "agent-backend restore ab.tar.gz --data-dir ./state"),
    ("config", Some(&["json"]), "agent-backend config show"),
    ("config show", Some(&["config", "data_dir"]), "agent-backend config show --port 4000"),
    ("agent", None, "agent-backend agent list"),
    (
        "agent chat",
        Some(&["root", "goes_on", "approve", "isolation", "network"]),
        "agent-backend agent chat scripted",
    ),
    ("agent list", Some(&["json"]), "agent-backend agent list"),
    ("agent show", Some(&["json"]), "agent-backend agent show claude"),
    ("agent install", Some(&["again"]), "agent-backend agent install claude"),
    ("agent script", None, "agent-backend agent script scenario.toml"),
    (
        "agent access-point",
        Some(&["config", "data_dir", "host", "port", "root"]),
        "agent-backend serve --port 0 --data-dir ./state",
    ),
    (
        "ssh-proxy",
        None,
        "ssh -o ProxyCommand='agent-backend ssh-proxy ws://127.0.0.1:3001/ssh' box",
    ),
    ("version", None, "agent-backend version --json"),
    ("completions", None, "source <(agent-backend completions bash)"),
];

/// The commands of a long list, in groups.
type CommandGroups = &'static [(&'static str, &'static [&'static str])];

/// The lists that `-h` shows as groups of names, by command. `--help` describes each command.
const GROUPED_COMMANDS: &[(&str, CommandGroups)] = &[
    (
        "agent-backend",
        &[
            (
                "workspaces",
                &["fs", "exec", "job", "policy", "mcp", "daemon", "ssh-proxy", "doctor"],
            ),
            ("tasks", &["serve", "webui", "task", "draft", "session", "approvals", "wait"]),
            ("agents", &["agent", "server"]),
            ("spaces", &["space", "run"]),
            ("servers", &["remote", "key", "cleanup", "backup", "restore", "config"]),
            ("others", &["version", "completions", "help"]),
        ],
    ),
    (
        "agent-backend fs",
        &[
            ("read", &["ls", "tree", "glob", "grep", "cat", "stat", "diff"]),
            ("change", &["write", "edit", "touch", "mkdir", "cp", "mv", "rm"]),
            ("copy from and to this machine", &["get", "put"]),
            ("others", &["help"]),
        ],
    ),
    (
        "agent-backend session",
        &[
            ("read", &["list", "get", "events", "logs", "audit", "diff", "compare"]),
            ("prompt", &["prompt", "prompts", "withdraw", "continue"]),
            ("use the workspace", &["run"]),
            ("interrupt", &["pause", "resume"]),
            ("end", &["finish", "stop", "cancel"]),
            ("others", &["help"]),
        ],
    ),
    (
        "agent-backend remote",
        &[
            ("what runs tasks", &["agents", "runtimes", "executors"]),
            ("repositories", &["projects", "repos", "import", "branches"]),
            ("workspaces", &["workspaces", "workspace"]),
            ("others", &["help"]),
        ],
    ),
];

/// Shows long lists of commands as groups of names. The texts of the commands are then not part of
/// the help.
pub(crate) fn with_grouped_commands(command: Command) -> Command {
    let top = command.get_name().to_owned();
    GROUPED_COMMANDS.iter().fold(command, |command, (path, groups)| {
        match path.strip_prefix(&top).and_then(|rest| rest.strip_prefix(' ')) {
            Some(name) => command.mut_subcommand(name, |inner| grouped(inner, path, groups)),
            None => grouped(command, path, groups),
        }
    })
}

fn grouped(command: Command, path: &str, groups: CommandGroups) -> Command {
    let header = command.get_styles().get_header();
    let width = groups.iter().map(|(title, _)| title.len()).max().unwrap_or_default();
    let mut list = format!("{header}Commands:{header:#}\n");
    for (title, names) in groups {
        list.push_str(&format!("  {title:width$}  {}\n", names.join(", ")));
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}\n{{all-args}}{{after-help}}"
    );
    // The usage names no command if all of them are hidden.
    let flags = if path.contains(' ') { "[OPTIONS] " } else { "" };
    command
        .override_usage(format!("{path} {flags}<COMMAND>"))
        .help_template(template)
        .mut_subcommands(|inner| inner.hide(true))
}

/// Prepares the help texts of a command and its subcommands.
pub(crate) fn shortened(command: Command) -> Command {
    let name = command.get_name().to_owned();
    shortened_at(command, &name)
}

fn shortened_at(mut command: Command, path: &str) -> Command {
    if let Some((_, shown, example)) = SHORT_HELP.iter().find(|(known, ..)| *known == path) {
        if let Some(shown) = shown {
            command = command.mut_args(|arg| {
                let hide = !arg.is_positional() && !shown.contains(&arg.get_id().as_str());
                let hide = hide || arg.is_hide_short_help_set();
                arg.hide_short_help(hide)
            });
        }
        if !example.is_empty() {
            let long = command.get_after_long_help().or(command.get_after_help());
            let example = format!("Example:\n  {example}");
            let long = long.map_or(example.clone(), ToString::to_string);
            command = command.after_help(example).after_long_help(long);
        }
    }
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        command = command.after_long_help(unwrapped(&text));
    }
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |inner| shortened_at(inner, &path));
    }
    command
}

/// Joins the lines of each paragraph, so that the text wraps only at the width of the terminal.
/// Indented lines and headings are not changed.
pub(crate) fn unwrapped(text: &str) -> String {
    let mut joined = String::new();
    let mut is_paragraph = false;
    for line in text.lines() {
        let starts_own_line = line.is_empty() || line.starts_with(' ');
        if is_paragraph && !starts_own_line {
            joined.push(' ');
        } else if !joined.is_empty() {
            joined.push('\n');
        }
        joined.push_str(line);
        is_paragraph = !starts_own_line && !line.ends_with(':');
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments;

    /// If a flag is renamed, it must not silently disappear from the short help.
    #[test]
    fn every_flag_of_the_short_help_exists() {
        let mut all = arguments::definition();
        all.build();
        for (path, shown, _) in SHORT_HELP {
            let command = path.split(' ').fold(&all, |command, name| {
                command.find_subcommand(name).unwrap_or_else(|| panic!("no command {path}"))
            });
            for id in shown.unwrap_or_default() {
                assert!(command.get_arguments().any(|arg| arg.get_id() == id), "{path}: {id}");
            }
        }
    }

    #[test]
    fn groups_have_every_command_once() {
        let mut all = arguments::definition();
        all.build();
        for (path, groups) in GROUPED_COMMANDS {
            let command = path.split(' ').skip(1).fold(&all, |command, name| {
                command.find_subcommand(name).unwrap_or_else(|| panic!("no command {path}"))
            });
            let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
            let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
            let mut grouped: Vec<&str> =
                groups.iter().flat_map(|(_, names)| *names).copied().collect();
            shown.sort_unstable();
            grouped.sort_unstable();
            assert_eq!(grouped, shown, "{path}");
        }
    }

    #[test]
    fn paragraphs_are_joined_and_examples_are_kept() {
        let check = |text: &str, expect: &str| assert_eq!(unwrapped(text), expect);
        check("one\ntwo\n\nthree", "one two\n\nthree");
        check("Examples:\n  a\n  b\n\nMore\ntext.", "Examples:\n  a\n  b\n\nMore text.");
        check("Exit codes:\n  0  done", "Exit codes:\n  0  done");
    }
}
