//! The work on a line grows with its length, and is bounded: counted in units, not in time.

use ab_core::{CommandLineCheckContext, Verdict};
use ab_policy::{
    CommandFindingKind, CommandPolicy, PolicyProfile, analyse_command, check_command_paths,
    context_for_rule_examples,
};

/// More than the bound of one analysis: what is in flight when it is reached still counts.
const MOST: usize = 60_000_000;

/// Bytes of a line that is long, and still quick to judge in a build without optimization.
const LONG_LINE: usize = 100_000;

/// A line of about this many parts.
type Shape = fn(usize) -> String;

/// Lines that once took time by the square of their length, or might.
const SHAPES: &[(&str, Shape)] = &[
    ("assignments before a command", |n| {
        (0..n).map(|at| format!("a{at}=1 ")).collect::<String>() + "ls"
    }),
    ("assignments", |n| (0..n).map(|at| format!("a{at}=1\n")).collect()),
    ("one variable", |n| "a=1; ".repeat(n)),
    ("alternatives", |n| (0..n).map(|at| format!("a{}=1 || b=2\n", at % 500)).collect()),
    ("exports", |n| (0..n).map(|at| format!("export a{at}=x; ")).collect()),
    ("growing values", |n| "a=$a$a$a$a;".repeat(n)),
    ("long values", |n| format!("a='{}'; ", "x".repeat(n)) + &"echo $a; ".repeat(n / 9)),
    ("values of many words", |n| format!("a='{}'; ", "x ".repeat(n)) + &"echo $a; ".repeat(n / 9)),
    ("words", |n| "x ".repeat(n)),
    ("words of echo", |n| format!("echo {}", "x ".repeat(n))),
    ("one long word", |n| "x".repeat(n)),
    ("commands", |n| "ls a b;".repeat(n)),
    ("pipes", |n| "ls | ".repeat(n) + "ls"),
    ("functions", |n| (0..n).map(|at| format!("f{at}() {{ ls; }}\n")).collect()),
    ("functions that call each other", |n| {
        (0..n).map(|at| format!("f{at}() {{ f{}; }}\n", (at + 1) % n.max(1))).collect()
    }),
    ("calls", |n| "f() { ls; ls; ls; }; ".to_owned() + &"f a b; ".repeat(n)),
    ("calls that multiply", |n| {
        (0..n.min(40)).map(|at| format!("f{at}() {{ f{0}; f{0}; }}\n", at + 1)).collect::<String>()
            + "f0"
    }),
    ("substitutions", |n| "echo $(ls) `ls`; ".repeat(n)),
    ("nested substitutions", |n| {
        let depth = 12;
        let one = format!("{}ls{}; ", "echo $(".repeat(depth), ")".repeat(depth));
        one.repeat(n / one.len() + 1)
    }),
    ("nested loops", |n| {
        let depth = 10;
        let one = format!("{}ls; {}", "for x in a; do ".repeat(depth), "done; ".repeat(depth));
        one.repeat(n / one.len() + 1)
    }),
    ("braces", |n| "echo {a,b}{c,d}{1..9}; ".repeat(n)),
    ("braces and a long word", |n| format!("echo {{1..4000}}{{a,b}}{}", "x".repeat(n))),
    ("open braces", |n| format!("echo {}", "{a,".repeat(n))),
    ("here-documents", |n| "cat <<E\n$a `ls`\nE\n".repeat(n)),
    ("one here-document", |n| format!("cat <<E\n{}E\n", "text $x\n".repeat(n))),
    ("arms", |n| format!("case x in {} esac", "a|b) ls;; ".repeat(n))),
    ("open arithmetic", |n| "((a # it's\n) )\n".repeat(n)),
    ("arithmetic", |n| "echo $((1 + $x));".repeat(n)),
    ("downloads", |n| (0..n).map(|at| format!("curl -o f{at} https://x.example; ")).collect()),
    ("aliases", |n| (0..n).map(|at| format!("alias a{at}='ls'; ")).collect()),
    ("directories", |n| (0..n).map(|at| format!("pushd d{at}; ")).collect()),
    ("changes of directory", |n| (0..n).map(|at| format!("cd d{at}; ")).collect()),
    ("wrappers", |n| "nice env timeout 5 ls; ".repeat(n)),
    ("one chain of wrappers", |n| "nice ".repeat(n) + "ls"),
    ("redirects of a group", |n| format!("{{ {} }} < {}", "ls; ".repeat(n), "x".repeat(n))),
    ("hooks", |n| format!("tar {}", "--to-command='ls' ".repeat(n))),
    ("finds", |n| format!("find . {}", "-exec ls {} \\; ".repeat(n))),
    ("overrides", |n| "gsutil rsync a b; ".repeat(n)),
    ("programs that nobody knows", |n| "$x a; ".repeat(n)),
    ("quotes", |n| "echo 'a' \"b $c\" $'d\\n'; ".repeat(n)),
];

#[test]
fn work_grows_with_the_text() {
    let scene = context_for_rule_examples();
    let mut compared = 0;
    for (name, shape) in SHAPES {
        let measured = |n: usize| {
            let text = shape(n);
            let analysis = analyse_command(&text, &scene);
            let over =
                analysis.findings.iter().any(|found| found.kind == CommandFindingKind::OverLimit);
            (text.len().max(1), analysis.analysis_cost, over)
        };
        let (short, little, over) = measured(60);
        let (long, much, over_much) = measured(600);
        if over || over_much {
            continue;
        }
        compared += 1;
        let (factor, growth) = (long as f64 / short as f64, much as f64 / little.max(1) as f64);
        // Some shapes are products of two bounded parts; none may be the square of its length.
        let bounded = name.contains("values") || name.contains("alternatives");
        assert!(growth < factor * 1.6 || bounded, "{name}: {growth:.1} for {factor:.1}");
    }
    // A limit that cut everything short would hide how work grows.
    assert!(compared * 10 >= SHAPES.len() * 9, "{compared} of {} were compared", SHAPES.len());
}

#[test]
fn work_is_bounded_whatever_the_text() {
    let scene = context_for_rule_examples();
    for (name, shape) in SHAPES {
        let unit = shape(64).len().max(1) as f64 / 64.0;
        let text = shape((LONG_LINE as f64 / unit) as usize);
        let analysis = analyse_command(&text, &scene);
        assert!(analysis.analysis_cost < MOST, "{name}: {}", analysis.analysis_cost);
    }
}

#[test]
fn a_screen_is_bounded_too() {
    let (roots, env) = (["/workspace".to_owned()], std::collections::BTreeMap::new());
    let confines = CommandLineCheckContext {
        roots: &roots,
        cwd: "",
        env: &env,
        stdin: None,
        readable_dirs: &[],
    };
    let many: String = (0..14_000).map(|at| format!("a{at}=1 ")).collect();
    assert!(check_command_paths(&many, &confines).is_err(), "more variables than are told apart");
    assert!(check_command_paths(&format!("echo {}", "x ".repeat(100_000)), &confines).is_ok());
}

#[test]
fn long_ordinary_scripts_are_looked_at_whole() {
    let policy = CommandPolicy::new(PolicyProfile::Guarded).unwrap();
    let scene = context_for_rule_examples();
    let script: String = (0..5_000)
        .map(|at| format!("echo \"step {at}\" >> log.txt && test -f src/file{at}.txt || exit 1\n"))
        .collect();
    assert_eq!(policy.judge(&script, &scene).verdict, Verdict::Allow);
    let hidden = format!("{script}sudo ls\n");
    assert_eq!(policy.judge(&hidden, &scene).verdict, Verdict::Deny);
    let variables: String = (0..1_000).map(|at| format!("V{at}='value {at}'\n")).collect();
    assert_eq!(policy.judge(&variables, &scene).verdict, Verdict::Allow);
}
