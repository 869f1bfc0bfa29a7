//! The command line of `cargo xtask`, parsed once into a [`Task`].

use crate::failure::Failure;
use crate::tasks::bench::{self, Area};
use crate::tasks::fuzz::{self, Target};
use crate::tasks::soak::{self, Extent, Subject};
use crate::tasks::up::Show;

const DEFAULT_FUZZ_SECONDS: u64 = 60;
const DEFAULT_RACE_ROUNDS: u64 = 100_000;
const DEFAULT_SOAK_MINUTES: u64 = 5;

/// What `cargo xtask help` prints.
const HELP: &str = "\
usage: cargo xtask <command>

  up [--tour | --once]      install what the product needs, build it and start it on a sample repository;
                            --tour shows the commands on files instead, --once runs the first commands
                            on the server and ends
  test                      everything CI runs: packages, fmt, clippy, peers, tests, doc tests, docs
  check                     the short loop: fmt, clippy, tidy, fast tests
  bench [area]              run the benchmarks of one area, or of all
  fuzz [target] [seconds]   run one fuzz target, or all, for so long each (60)
  race [rounds]             run the racing escape test for so many rounds (100000)
  soak <subject> [minutes]  repeat faults on a subject for so long (5): remote, sessions, history;
                            once: agents, the coding agents that are too large for every run, and
                            rig, the example for the crate of that name
  bare [command]            run `up` and `test`, or one of them, in a Debian root with only cargo and cc
  dist                      build the program as one optimised, stripped file, and say where it is
  peers                     install the programs of others that tests run, and say where
  help                      print this list";

/// A parsed command.
#[derive(Debug, PartialEq)]
pub(crate) enum Task {
    Help,
    Up { show: Show },
    Test,
    Check,
    Bench { areas: Vec<&'static Area> },
    Fuzz { targets: Vec<&'static Target>, seconds: u64 },
    Race { rounds: u64 },
    Soak { subject: &'static Subject, minutes: u64 },
    Bare { commands: Vec<String> },
    Dist,
    Peers,
}

impl Task {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Task, Failure> {
        let arguments: Vec<String> = arguments.into_iter().collect();
        let Some((command, rest)) = arguments.split_first() else {
            return Err(refusal("no command given"));
        };
        if arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "--help")) {
            return Ok(Task::Help);
        }
        // Only `up` has flags.
        let flag = arguments.iter().find(|argument| argument.starts_with('-'));
        if let Some(flag) = flag.filter(|_| command != "up") {
            return Err(refusal(&format!("unknown flag `{flag}`")));
        }
        match command.as_str() {
            "help" => alone(Task::Help, rest),
            "up" => parse_up(rest),
            "test" => alone(Task::Test, rest),
            "check" => alone(Task::Check, rest),
            "bench" => parse_bench(rest),
            "fuzz" => parse_fuzz(rest),
            "race" => parse_race(rest),
            "soak" => parse_soak(rest),
            "bare" => parse_bare(rest),
            "dist" => alone(Task::Dist, rest),
            "peers" => alone(Task::Peers, rest),
            _ => Err(refusal(&format!("unknown command `{command}`"))),
        }
    }

    pub(crate) fn help() -> &'static str {
        HELP
    }
}

fn alone(task: Task, rest: &[String]) -> Result<Task, Failure> {
    match rest.first() {
        None => Ok(task),
        Some(extra) => Err(refusal(&format!("unexpected argument `{extra}`"))),
    }
}

fn parse_up(rest: &[String]) -> Result<Task, Failure> {
    let (show, rest) = match rest {
        [flag, rest @ ..] if flag == "--tour" => (Show::Tour, rest),
        [flag, rest @ ..] if flag == "--once" => (Show::Once, rest),
        rest => (Show::Server, rest),
    };
    match rest.first() {
        Some(flag) if flag.starts_with('-') => Err(refusal(&format!("unknown flag `{flag}`"))),
        _ => alone(Task::Up { show }, rest),
    }
}

fn parse_bench(rest: &[String]) -> Result<Task, Failure> {
    match rest {
        [] => Ok(Task::Bench { areas: bench::AREAS.iter().collect() }),
        [name] => match bench::AREAS.iter().find(|area| area.name == name) {
            Some(area) => Ok(Task::Bench { areas: vec![area] }),
            None => Err(unknown("area", name, bench::AREAS.iter().map(|area| area.name))),
        },
        [_, extra, ..] => Err(refusal(&format!("unexpected argument `{extra}`"))),
    }
}

fn parse_fuzz(rest: &[String]) -> Result<Task, Failure> {
    // A single number is the time for all targets, because no target has a number as its name.
    let (name, seconds) = match rest {
        [] => (None, None),
        [only] if only.parse::<u64>().is_ok() => (None, Some(only)),
        [name] => (Some(name), None),
        [name, seconds] => (Some(name), Some(seconds)),
        [_, _, extra, ..] => return Err(refusal(&format!("unexpected argument `{extra}`"))),
    };
    let targets = match name {
        None => fuzz::TARGETS.iter().collect(),
        Some(name) => match fuzz::TARGETS.iter().find(|target| target.name == name) {
            Some(target) => vec![target],
            None => {
                return Err(unknown(
                    "target",
                    name,
                    fuzz::TARGETS.iter().map(|target| target.name),
                ));
            }
        },
    };
    let seconds = seconds.map_or(Ok(DEFAULT_FUZZ_SECONDS), |text| positive("seconds", text))?;
    Ok(Task::Fuzz { targets, seconds })
}

fn parse_race(rest: &[String]) -> Result<Task, Failure> {
    match rest {
        [] => Ok(Task::Race { rounds: DEFAULT_RACE_ROUNDS }),
        [rounds] => Ok(Task::Race { rounds: positive("rounds", rounds)? }),
        [_, extra, ..] => Err(refusal(&format!("unexpected argument `{extra}`"))),
    }
}

fn parse_bare(rest: &[String]) -> Result<Task, Failure> {
    let commands = match rest {
        [] => vec!["up".to_owned(), "test".to_owned()],
        [one] if ["up", "test", "check"].contains(&one.as_str()) => vec![one.clone()],
        [other] => return Err(unknown("command", other, ["up", "test", "check"].into_iter())),
        [_, extra, ..] => return Err(refusal(&format!("unexpected argument `{extra}`"))),
    };
    Ok(Task::Bare { commands })
}

fn parse_soak(rest: &[String]) -> Result<Task, Failure> {
    let (name, minutes) = match rest {
        [] => return Err(refusal("`soak` needs a subject")),
        [name] => (name, None),
        [name, minutes] => (name, Some(minutes)),
        [_, _, extra, ..] => return Err(refusal(&format!("unexpected argument `{extra}`"))),
    };
    let subject = soak::SUBJECTS.iter().find(|subject| subject.name == name);
    let names = soak::SUBJECTS.iter().map(|subject| subject.name);
    let subject = subject.ok_or_else(|| unknown("subject", name, names))?;
    if let (Extent::Agents(_) | Extent::Program { .. }, Some(extra)) = (subject.extent, minutes) {
        return Err(refusal(&format!("unexpected argument `{extra}`")));
    }
    let minutes = minutes.map_or(Ok(DEFAULT_SOAK_MINUTES), |text| positive("minutes", text))?;
    Ok(Task::Soak { subject, minutes })
}

fn positive(what: &str, text: &str) -> Result<u64, Failure> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(refusal(&format!("`{text}` is not a number of {what} above zero"))),
    }
}

fn refusal(message: &str) -> Failure {
    Failure::usage(format!("{message}\n\n{HELP}"))
}

fn unknown(kind: &str, name: &str, known: impl Iterator<Item = &'static str>) -> Failure {
    let known: Vec<&str> = known.collect();
    Failure::usage(format!("unknown {kind} `{name}`; known are: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Task, Failure> {
        Task::parse(line.split_whitespace().map(str::to_owned))
    }

    #[track_caller]
    fn refused(line: &str, hint: &str) {
        let failure = parse(line).expect_err("the line should be refused");
        assert_eq!(failure.code(), 2, "{failure}");
        assert!(failure.to_string().contains(hint), "{failure}");
    }

    #[test]
    fn commands_parse() {
        for (line, expected) in [
            ("help", Task::Help),
            ("--help", Task::Help),
            ("up -h", Task::Help),
            ("up", Task::Up { show: Show::Server }),
            ("up --tour", Task::Up { show: Show::Tour }),
            ("up --once", Task::Up { show: Show::Once }),
            ("test", Task::Test),
            ("check", Task::Check),
            ("race", Task::Race { rounds: 100_000 }),
            ("race 7", Task::Race { rounds: 7 }),
            ("soak remote", Task::Soak { subject: &soak::SUBJECTS[0], minutes: 5 }),
            ("soak remote 2", Task::Soak { subject: &soak::SUBJECTS[0], minutes: 2 }),
            ("bare test", Task::Bare { commands: vec!["test".to_owned()] }),
            ("bare", Task::Bare { commands: vec!["up".to_owned(), "test".to_owned()] }),
            ("dist", Task::Dist),
            ("peers", Task::Peers),
        ] {
            assert_eq!(parse(line).expect(line), expected, "{line}");
        }
    }

    #[test]
    fn bench_takes_an_area() {
        let all = Task::Bench { areas: bench::AREAS.iter().collect() };
        assert_eq!(parse("bench").unwrap(), all);
        assert!(matches!(parse("bench core").unwrap(), Task::Bench { areas } if areas.len() == 1));
        refused("bench moon", "core");
        refused("bare moon", "up, test");
    }

    #[test]
    fn fuzz_takes_a_target_then_seconds() {
        let count = fuzz::TARGETS.len();
        for (line, targets, seconds) in
            [("fuzz", count, 60), ("fuzz 5", count, 5), ("fuzz path", 1, 60), ("fuzz edit 9", 1, 9)]
        {
            let Task::Fuzz { targets: found, seconds: time } = parse(line).unwrap() else {
                panic!("{line} is not a fuzz task");
            };
            assert_eq!((found.len(), time), (targets, seconds), "{line}");
        }
        refused("fuzz moon", "path, edit");
        refused("fuzz path 0", "above zero");
    }

    #[test]
    fn nonsense_gets_the_list() {
        for line in [
            "",
            "fly",
            "test --fast",
            "up now",
            "up --fast",
            "race many",
            "race 1 2",
            "bench core 2",
            "soak agents 5",
            "soak rig 5",
        ] {
            refused(line, "usage: cargo xtask <command>");
        }
    }
}
