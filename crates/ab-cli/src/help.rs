//! What `-h` shows: the few flags that matter most. `--help` shows all of them.

use clap::Command;

/// The flags that `-h` shows, by command. A command that is not listed shows all of its flags.
const SHORT_HELP: &[(&str, &[&str])] = &[
    ("exec", &["pty", "detach", "env", "timeout", "network"]),
    ("job", &["json", "root", "remote"]),
    ("job logs", &["follow"]),
    ("job attach", &[]),
    ("job kill", &["signal"]),
    ("mcp", &["root", "isolation", "network", "read_only", "remote"]),
    ("daemon", &["root_dir", "host", "port", "auth_token_file", "network"]),
    ("fs", &["json", "root", "remote"]),
    ("fs ls", &["long", "recursive"]),
    ("fs tree", &["depth", "exclude"]),
    ("fs glob", &["exclude", "hidden", "no_ignore"]),
    ("fs grep", &["regex", "ignore_case", "word_regexp", "files_with_matches", "context"]),
    ("fs cat", &["offset", "limit", "number"]),
    ("fs write", &["content", "create_new", "expect"]),
    ("fs mkdir", &[]),
];

/// Hides from `-h` the flags that are not listed for the command or one of its subcommands.
pub(crate) fn shortened(command: Command) -> Command {
    let name = command.get_name().to_owned();
    shortened_at(command, &name)
}

fn shortened_at(mut command: Command, path: &str) -> Command {
    if let Some((_, shown)) = SHORT_HELP.iter().find(|(known, _)| *known == path) {
        command = command.mut_args(|arg| {
            let hide = !arg.is_positional() && !shown.contains(&arg.get_id().as_str());
            let hide = hide || arg.is_hide_short_help_set();
            arg.hide_short_help(hide)
        });
    }
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |inner| shortened_at(inner, &path));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments;

    /// A flag that was renamed must not vanish from the short help unnoticed.
    #[test]
    fn every_flag_of_the_short_help_exists() {
        let mut all = arguments::definition();
        all.build();
        for (path, shown) in SHORT_HELP {
            let command = path.split(' ').fold(&all, |command, name| {
                command.find_subcommand(name).unwrap_or_else(|| panic!("no command {path}"))
            });
            for id in *shown {
                assert!(command.get_arguments().any(|arg| arg.get_id() == id), "{path}: {id}");
            }
        }
    }
}
