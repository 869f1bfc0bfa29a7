//! Parses shell text into a tree of what a shell would execute, or reports why this is not
//! possible.
//!
//! The parser is strict. If it does not understand something with certainty, it returns an error.
//! Callers treat an error as "not safe". The time is linear in the length of the text, and the
//! depth of every kind of nesting is limited.

mod ansi;
mod arithmetic;
mod compound;
mod document;
mod meter;
mod parser;
pub(crate) mod tree;
mod words;

use std::fmt;

pub(crate) use meter::Meter;
use tree::Script;

/// Maximum length of a command line in bytes.
pub const MAX_COMMAND_BYTES: usize = 1024 * 1024;
/// Maximum nesting depth of groups, substitutions and quoted programs.
pub(crate) const MAX_SHELL_NESTING_DEPTH: usize = 48;

/// The grammar of a shell. The shell that executes a line may be bash or a plain POSIX shell. `((`
/// and `[[` have a different meaning in a POSIX shell. See [`has_two_readings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Bash,
    Posix,
}

/// The error for a text that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unparsable {
    /// The position in the text, in bytes.
    pub(crate) offset: usize,
    pub(crate) problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The text is not valid shell, or not supported by this parser.
    Syntax(&'static str),
    /// The text exceeds the limits of the analysis.
    Limit(&'static str),
}

impl fmt::Display for Unparsable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::Syntax(what) => write!(f, "{what} at byte {}", self.offset),
            Problem::Limit(what) => f.write_str(what),
        }
    }
}

/// Parses `text`. `depth` is its nesting depth in the text of the caller.
pub(crate) fn parse(
    text: &str,
    dialect: Dialect,
    depth: usize,
    meter: &Meter,
) -> Result<Script, Unparsable> {
    if text.len() > MAX_COMMAND_BYTES {
        let problem = Problem::Limit("longer than what is looked at");
        return Err(Unparsable { offset: MAX_COMMAND_BYTES, problem });
    }
    parser::Parser::new(text, dialect, depth, meter).script_to_end()
}

/// Whether a POSIX shell could parse `text` differently from bash.
pub(crate) fn has_two_readings(text: &str) -> bool {
    const MARKS: [&str; 9] = ["((", "[[", "$'", "$\"", "&>", "coproc", "function", "select", "$["];
    MARKS.iter().any(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::tree::*;
    use super::*;

    fn parsed(text: &str) -> Script {
        let parsed = parse(text, Dialect::Bash, 0, &Meter::default());
        parsed.unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    fn refused(text: &str) -> String {
        match parse(text, Dialect::Bash, 0, &Meter::default()) {
            Ok(script) => panic!("{text:?} became {script:?}"),
            Err(error) => error.to_string(),
        }
    }

    fn shape(script: &Script) -> String {
        let items = script.items.iter().map(|item| {
            let mut text = pipeline(&item.first);
            for (link, next) in &item.rest {
                text += if *link == Link::And { " && " } else { " || " };
                text += &pipeline(next);
            }
            text + match item.end {
                End::Last => "",
                End::Separator => ";",
                End::Background => "&",
            }
        });
        items.collect::<Vec<_>>().join(" ")
    }

    fn pipeline(pipeline: &Pipeline) -> String {
        let commands: Vec<String> = pipeline.commands.iter().map(command).collect();
        let not = if pipeline.negated { "! " } else { "" };
        format!("{not}{}", commands.join(" | "))
    }

    fn command(command: &Command) -> String {
        let mut text = match &command.body {
            Body::Simple(simple) => {
                let assigned = simple.assignments.iter().map(|each| format!("{}=", each.name));
                let words = simple.words.iter().map(|word| word.source.clone());
                assigned.chain(words).collect::<Vec<_>>().join(" ")
            }
            Body::Subshell(script) => format!("({})", shape(script)),
            Body::Group(script) => format!("{{{}}}", shape(script)),
            Body::If { arms, otherwise } => {
                let arms: Vec<String> = arms
                    .iter()
                    .map(|(test, body)| format!("{}?{}", shape(test), shape(body)))
                    .collect();
                let rest = otherwise.as_ref().map(shape).unwrap_or_default();
                format!("if[{}:{rest}]", arms.join(","))
            }
            Body::Loop { until, condition, body } => {
                format!(
                    "{}[{}?{}]",
                    if *until { "until" } else { "while" },
                    shape(condition),
                    shape(body)
                )
            }
            Body::For { name, words, body } => {
                format!("for {name}/{}[{}]", words.len(), shape(body))
            }
            Body::ArithmeticFor { endless, body, .. } => {
                format!("for(({endless}))[{}]", shape(body))
            }
            Body::Case { arms, .. } => {
                let arms: Vec<String> = arms
                    .iter()
                    .map(|(words, body)| format!("{}>{}", words.len(), shape(body)))
                    .collect();
                format!("case[{}]", arms.join(","))
            }
            Body::Function { name, body } => format!("{name}(){}", self::command(body)),
            Body::Test(words) => format!("test/{}", words.len()),
            Body::Arithmetic(_) => "arithmetic".to_owned(),
            Body::Coprocess(body) => format!("coproc {}", self::command(body)),
        };
        for redirect in &command.redirects {
            text += &format!(" {:?}:{}", redirect.kind, redirect.target().source);
        }
        text
    }

    #[test]
    fn every_construct_has_its_shape() {
        for (text, expect) in [
            ("ls -la", "ls -la"),
            ("a; b & c", "a; b& c"),
            ("a && b || c\nd", "a && b || c; d"),
            ("! a | b |& c", "! a | b | c"),
            ("A=1 B=2 cmd x", "A= B= cmd x"),
            ("( a; b ) > out", "(a; b) Write:out"),
            ("{ a; b; } 2>&1", "{a; b;} Duplicate:1"),
            ("if a; then b; elif c; then d; else e; fi", "if[a;?b;,c;?d;:e;]"),
            ("while a; do b; done", "while[a;?b;]"),
            ("until a\ndo b\ndone", "until[a;?b;]"),
            ("for x in 1 2; do a $x; done", "for x/2[a $x;]"),
            ("for x; do a; done", "for x/0[a;]"),
            ("for ((i=0; i<3; i++)); do a; done", "for((false))[a;]"),
            ("for ((;;)); do a; done", "for((true))[a;]"),
            ("select x in a b; do c; done", "for x/2[c;]"),
            ("case $x in a|b) c;; (*) d;; esac", "case[2>c,1>d]"),
            ("case x in a) b ;& c) d ;;& e) esac", "case[1>b,1>d,1>]"),
            ("f() { a; }", "f(){a;}"),
            ("function f { a; }; f", "f(){a;}; f"),
            ("function f() ( a )", "f()(a)"),
            ("[[ -f x && ( a == b* || $c =~ ^[a-z]+(x|y)$ ) ]]", "test/8"),
            ("(( i += 2 ))", "arithmetic"),
            ("((a); b)", "((a); b)"),
            ("coproc NAME { a; }", "coproc {a;}"),
            ("coproc a b", "coproc a b"),
            ("time -p a", "a"),
            ("a # comment ; b\nc", "a; c"),
            (
                "a >x 2>>y <z <>w &>v >|u <<<t",
                "a Write:x Write:y Read:z ReadWrite:w Write:v Write:u Text:t",
            ),
            ("a <<E\nbody\nE\nb", "a Document:body\n; b"),
            ("a <<-'E' | b; c\n\tbody\n\tE", "a Document:body\n | b; c;"),
            ("a <<A <<B\n1\nA\n2\nB", "a Document:1\n Document:2\n;"),
            ("echo a\\\nb", "echo a\\\nb"),
            ("x=(1 2 $(a)) b", "x= b"),
            ("a[1]=2", "a="),
            ("echo {a,b}", "echo {a,b}"),
            ("echo }", "echo }"),
            ("echo if then", "echo if then"),
            ("$(a) `b`", "$(a) `b`"),
            ("cat <(a | b) >(c)", "cat <(a | b) >(c)"),
            (
                "echo $((1+(2*3))) $[1+2] ${a:-${b}} ${#a} ${a[@]} ${!x}",
                "echo $((1+(2*3))) $[1+2] ${a:-${b}} ${#a} ${a[@]} ${!x}",
            ),
            ("echo $'it\\'s' b", "echo $'it\\'s' b"),
            ("read -d $'\\0' x", "read -d $'\\0' x"),
            ("echo $'\\xff' b", "echo $'\\xff' b"),
            ("ls !(*.txt) *.@(a|b) x", "ls !(*.txt) *.@(a|b) x"),
            ("case x in @(a|b)) c;; esac", "case[1>c]"),
            ("[[ $x =~ ^a|b$ || -f y ]]", "test/5"),
            ("a[i + 1]=5; b[\"x y\"]=6", "a=; b="),
            (
                "echo \"${x:-'d'}\" \"${m['k']}\" \"${x//\\'/}\"",
                "echo \"${x:-'d'}\" \"${m['k']}\" \"${x//\\'/}\"",
            ),
            ("echo \"${x:-it's}\" b", "echo \"${x:-it's}\" b"),
            ("echo \"${x#'}'}\" b", "echo \"${x#'}'}\" b"),
            ("(( m['k'] += 1 ))", "arithmetic"),
            ("", ""),
            ("\n\n", ""),
        ] {
            assert_eq!(shape(&parsed(text)), expect, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_shell_is_refused() {
        for text in [
            "'open",
            "\"open",
            "$(open",
            "`open",
            "${open",
            "$((1",
            "a |",
            "a &&",
            "|| a",
            "; a",
            "( a",
            "a )",
            "{ a; ",
            "if a; then b",
            "if a; fi",
            "while a; done",
            "for in",
            "for x in a; b",
            "case x in a) b",
            "a >",
            "a > ;",
            "f() ",
            "a & & b",
            "a ;; b",
            "[[ a",
            "$'open",
            "a <<",
            "then",
            "fi",
            "done",
            "esac",
            "}",
            "!",
            "a\0b",
            "echo a(b)",
            "x=(1",
            "$(a",
            "echo $(cat <<E)\nE",
            "coproc",
            "time |",
        ] {
            refused(text);
        }
    }

    #[test]
    fn depth_and_length_have_bounds() {
        let deep = |n: usize| format!("{}a{}", "( ".repeat(n), " )".repeat(n));
        parsed(&deep(20));
        assert!(refused(&deep(1000)).contains("deep"));
        assert!(refused(&"$(".repeat(5000)).contains("deep"));
        assert!(refused(&"${a:-".repeat(5000)).contains("deep"));
        assert!(refused(&"a".repeat(MAX_COMMAND_BYTES + 1)).contains("longer"));
        parsed(&"a".repeat(100_000));
    }
}
