//! Whatever the text, the analysis ends, and never calls safe what it could not parse.

use std::time::{Duration, Instant};

use ab_core::{CommandLineCheckContext, Verdict};
use ab_policy::{
    CommandFindingKind, CommandPolicy, PolicyProfile, analyse_command, check_command_paths,
    context_for_rule_examples,
};
use ab_testkit::fuzz;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::sample::select;

use crate::corpus::files;

/// No text of the sizes here may take longer, on the slowest machine.
const LONGEST: Duration = Duration::from_secs(5);

const PIECES: &[&str] = &[
    " ",
    " ",
    "\n",
    ";",
    "&",
    "&&",
    "||",
    "|",
    "(",
    ")",
    "{",
    "}",
    "((",
    "))",
    "[[",
    "]]",
    "$(",
    "`",
    "$((",
    "${",
    "$'",
    "'",
    "\"",
    "\\",
    "\\\n",
    "$",
    "<",
    ">",
    ">>",
    "<<",
    "<<EOF\n",
    "\nEOF\n",
    "<<<",
    "<(",
    ">(",
    "&>",
    "2>&1",
    "#",
    "*",
    "?",
    "[",
    "]",
    "~",
    "=",
    "+=",
    "!",
    "-",
    ",",
    "..",
    "/",
    "if ",
    "then ",
    "fi",
    "else ",
    "for x in ",
    "do ",
    "done",
    "while ",
    "case x in ",
    "esac",
    ";;",
    "function ",
    "f()",
    "coproc ",
    "time ",
    "rm",
    "-rf",
    "sudo",
    "bash",
    "-c",
    "eval",
    "env",
    "xargs",
    "find",
    "-exec",
    "cd",
    "X=",
    "$X",
    "\"$@\"",
    "echo",
    "{a,b}",
    "{1..9}",
    "é",
    "\t",
    "\r",
    "\0",
    "trap",
    "alias x=",
    "git",
    "curl",
    "EOF",
];

fn text() -> impl Strategy<Value = String> {
    let commands: Vec<String> =
        files().into_iter().flat_map(|(_, corpus)| corpus.cases).map(|case| case.command).collect();
    let grown = vec(select(PIECES), 0..40).prop_map(|pieces| pieces.concat());
    let edited = (select(commands.clone()), any::<usize>(), select(PIECES), any::<bool>())
        .prop_map(|(command, at, piece, cut)| {
            let mut places: Vec<usize> = command.char_indices().map(|(at, _)| at).collect();
            places.push(command.len());
            let at = places[at % places.len()];
            if cut {
                command[..at].to_owned()
            } else {
                format!("{}{piece}{}", &command[..at], &command[at..])
            }
        });
    let joined = (select(commands.clone()), select(PIECES), select(commands))
        .prop_map(|(one, piece, other)| format!("{one}{piece}{other}"));
    let deep = (select(PIECES), 1..3000usize).prop_map(|(piece, times)| piece.repeat(times));
    let noise = any::<String>();
    prop_oneof![4 => grown, 4 => edited, 2 => joined, 1 => deep, 1 => noise]
}

/// Whether the next line is part of a here-document without an end. Anywhere else, a parenthesis
/// that closes nothing cannot be parsed.
fn swallows_next_line(text: &str) -> bool {
    let findings = analyse_command(&format!("{text}\n)"), &context_for_rule_examples()).findings;
    !findings.iter().any(|found| found.kind == CommandFindingKind::Unparsable)
}

#[test]
fn fuzz_policy() {
    let guarded = CommandPolicy::new(PolicyProfile::Guarded).unwrap();
    let strict = CommandPolicy::new(PolicyProfile::Strict).unwrap();
    let scene = context_for_rule_examples();
    fuzz::check_property("fuzz_policy", text(), |text| {
        let started = Instant::now();
        let judged = guarded.judge(&text, &scene);
        let verdict = judged.verdict;
        prop_assert!(started.elapsed() < LONGEST, "took {:?}", started.elapsed());
        prop_assert!(strict.judge(&text, &scene).verdict >= verdict, "strict is milder");
        let unclear = |effect: CommandFindingKind| {
            matches!(effect, CommandFindingKind::Unparsable | CommandFindingKind::OverLimit)
        };
        let lost = judged.analysis.findings.iter().any(|found| unclear(found.kind));
        if lost {
            prop_assert_eq!(verdict, Verdict::Deny);
        }
        // A shell inside a shell sees no more and no less.
        let quoted = format!("bash -c '{}'", text.replace('\'', r"'\''"));
        let inner = guarded.judge(&quoted, &scene).verdict;
        prop_assert!(inner >= verdict.min(Verdict::Ask), "hidden by bash -c: {inner}");
        // Nothing hides what stands before or after it.
        let before = format!("rm -rf /\n{text}");
        prop_assert_eq!(guarded.judge(&before, &scene).verdict, Verdict::Deny);
        // By its path, since the text may make a function of that name.
        let after = format!("{text}\n/bin/rm -rf /");
        // A backslash at the end, which is no command, would join the lines.
        if !lost && !swallows_next_line(&text) {
            prop_assert_eq!(guarded.judge(&after, &scene).verdict, Verdict::Deny);
        }
        Ok(())
    });
}

#[test]
fn fuzz_screen() {
    let roots = ["/workspace".to_owned()];
    let env = std::collections::BTreeMap::new();
    let readable = &["/usr", "/bin"];
    let confines = CommandLineCheckContext {
        roots: &roots,
        cwd: "",
        env: &env,
        stdin: None,
        readable_dirs: readable,
    };
    let scene = context_for_rule_examples();
    fuzz::check_property("fuzz_screen", text(), |text| {
        let started = Instant::now();
        let passes = check_command_paths(&text, &confines).is_ok();
        prop_assert!(started.elapsed() < LONGEST, "took {:?}", started.elapsed());
        let unclear = |effect: CommandFindingKind| {
            matches!(effect, CommandFindingKind::Unparsable | CommandFindingKind::OverLimit)
        };
        let lost = analyse_command(&text, &scene).findings.iter().any(|found| unclear(found.kind));
        prop_assert!(!(lost && passes), "passes though it cannot be understood");
        // Nothing hides what stands before or after it.
        let way_out = "cat /etc/passwd";
        let (before, after) = (format!("{way_out}\n{text}"), format!("{text}\n{way_out}"));
        prop_assert!(check_command_paths(&before, &confines).is_err());
        if !lost {
            let hides = swallows_next_line(&text);
            prop_assert!(hides || check_command_paths(&after, &confines).is_err());
            let inside = format!("(\n{text}\n)\n");
            prop_assert!(
                passes || check_command_paths(&inside, &confines).is_err(),
                "hidden by a subshell"
            );
        }
        Ok(())
    });
}

#[test]
fn limits_fail_to_deny() {
    let policy = CommandPolicy::new(PolicyProfile::Guarded).unwrap();
    let scene = context_for_rule_examples();
    for text in [
        "ls;".repeat(30_000),
        "ls | ".repeat(30_000) + "ls",
        "( ".repeat(100) + "ls" + &" )".repeat(100),
        "$(".repeat(60) + "ls" + &")".repeat(60),
        "a".repeat(ab_policy::MAX_COMMAND_BYTES + 1),
        "echo ".to_owned() + &"{a,b}".repeat(13),
        "echo x x x;".repeat(50_000),
        "bash -c \"".to_owned() + &"bash -c '".repeat(60),
    ] {
        let shown: String = text.chars().take(40).collect();
        assert_eq!(policy.judge(&text, &scene).verdict, Verdict::Deny, "{shown}");
        let found = analyse_command(&text, &scene).findings;
        assert!(
            found.iter().any(|found| matches!(
                found.kind,
                CommandFindingKind::OverLimit | CommandFindingKind::Unparsable
            )),
            "{shown}"
        );
    }
    let long = format!("cat > notes <<'EOF'\n{}EOF", "rm -rf / is text\n".repeat(50_000));
    assert_eq!(policy.judge(&long, &scene).verdict, Verdict::Allow, "long text is no long command");
}
