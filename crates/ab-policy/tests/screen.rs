//! Words that lead out of a workspace: lines that pass and lines that do not.

use std::collections::BTreeMap;

use ab_core::{CommandLineCheckContext, Error, ErrorCode, ErrorKind, Verb};
use ab_policy::check_command_paths;

const READABLE: &[&str] = &["/usr", "/bin", "/lib", "/etc/ssl"];

fn screened(line: &str) -> Result<(), Error> {
    let roots = ["/srv/team/ws".to_owned(), "/workspace".to_owned()];
    check_command_paths(line, &confines(&roots, "", &BTreeMap::new()))
}

fn confines<'a>(
    roots: &'a [String],
    cwd: &'a str,
    env: &'a BTreeMap<String, String>,
) -> CommandLineCheckContext<'a> {
    CommandLineCheckContext { roots, cwd, env, stdin: None, readable_dirs: READABLE }
}

fn screened_with(line: &str, name: &str, value: &str) -> Result<(), Error> {
    let roots = ["/workspace".to_owned()];
    let env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    check_command_paths(line, &confines(&roots, "work", &env))
}

#[test]
fn variables_of_the_caller_are_what_words_are_judged_with() {
    for (line, name, value, passes) in [
        ("cat ~/hostname", "HOME", "/etc", false),
        ("cat $HOME/hostname", "HOME", "/etc", false),
        ("cd && cat hostname", "HOME", "/etc", false),
        ("cat ~/x", "HOME", "/workspace/home", true),
        ("cat ~/x", "HOME", "..", true),
        ("cat ~/../x", "HOME", "..", false),
        ("cat \"$X\"", "X", "/etc/passwd", false),
        ("cat \"$X\"", "X", "file", true),
        ("mktemp", "TMPDIR", "/etc", false),
        ("mktemp", "TMPDIR", "tmp", true),
        ("git status", "GIT_TRACE", "/srv/other/trace", false),
        ("ls", "DIRECTORIES", "a:/etc", false),
        ("ls", "URL", "https://example.org/etc/passwd", true),
        ("ls", "LANG", "C.UTF-8", true),
        ("ls", "GIT_CONFIG_GLOBAL", "/dev/null", true),
        ("ls", "HOME", "/etc", true),
        ("ls", "PATH", "/usr/bin:/bin", true),
        ("ls", "PATH", ":bin:./tools:/usr/bin", true),
        ("ls", "PATH", "/opt/evil:/usr/bin", false),
        ("ls", "PATH", "../../evil", false),
        ("cd $X; cat hostname", "HOME", "/etc", false),
        ("cd ${NOPE}; cat hostname", "HOME", "/etc", false),
        ("cd $(true); cat hostname", "HOME", "/etc", false),
        ("cd `true` && cat hostname", "HOME", "/etc", false),
        ("cd -P -- $X$(true); cat hostname", "HOME", "/etc", false),
        ("cd $X $Y; cat hostname", "HOME", "/etc", false),
        ("for d in $X; do cd $d; cat hostname; done", "HOME", "/etc", false),
        ("for i in 1 2; do cd $X; cat hostname; done", "HOME", "/etc", false),
        ("cd ${X:-}; cat hostname", "HOME", "/etc", false),
        ("cd \"$@\"; cat hostname", "HOME", "/etc", false),
        ("cd \"${X[@]}\"; cat hostname", "HOME", "/etc", false),
        ("f() { cd $1; cat hostname; }; f", "HOME", "/etc", false),
        ("cd $X /etc; cat hostname", "HOME", "/workspace", false),
        ("cd $X src && cat x", "HOME", "/etc", true),
        ("cd \"$X\"; cat x", "HOME", "/etc", true),
        ("cd $X/src; cat x", "HOME", "/etc", true),
        ("cd ''$X; cat x", "HOME", "/etc", true),
        ("cd $X && cat x", "HOME", "/workspace/home", true),
        ("cd - && cat hostname", "OLDPWD", "/etc", false),
        // A shell sets it itself.
        ("cat $PWD/x", "PWD", "/etc", true),
    ] {
        assert_eq!(screened_with(line, name, value).is_ok(), passes, "{line} with {name}={value}");
    }
}

#[test]
fn input_for_a_shell_is_looked_at() {
    let roots = ["/workspace".to_owned()];
    let env = BTreeMap::new();
    let with = |line: &str, input: &'static [u8]| {
        check_command_paths(
            line,
            &CommandLineCheckContext { stdin: Some(input), ..confines(&roots, "", &env) },
        )
    };
    for line in ["bash", "sh -s a b", "bash -", "cat x; bash /dev/stdin", ". /dev/stdin"] {
        assert!(with(line, b"echo a\ncat /etc/passwd\n").is_err(), "{line}");
        assert!(with(line, b"echo a\n").is_ok(), "{line}");
    }
    assert!(with("cat", b"cat /etc/passwd").is_ok());
}

/// In the directory `work` of the scope `users/a`.
fn screened_in_scope(line: &str) -> Result<(), Error> {
    let roots = ["/srv/team/ws/users/a".to_owned(), "/workspace/users/a".to_owned()];
    check_command_paths(line, &confines(&roots, "work", &BTreeMap::new()))
}

#[test]
fn accepts() {
    let mut wrong = Vec::new();
    for line in [
        "",
        "ls",
        "ls -la . ./sub sub/deep",
        "cat a/../b",
        "cat /workspace/a /srv/team/ws/b",
        "/usr/bin/env python3 x.py",
        "ls /usr/lib /bin",
        "make > out.log 2>&1 < in.txt",
        "cmd > /dev/null 2>/dev/null </dev/zero",
        "cmd >/dev/fd/3 2>&- >&2",
        "cat ~ ~/x $HOME/y \"${HOME}/z\" $PWD/a",
        "echo '/etc/passwd' \"it's / here\"",
        "echo 'a\"b' # it's a comment with /etc",
        "sed -n '/start/,/end/p' file.txt",
        "sed -e '/x/d' -e '/y/d' file",
        "awk -F: '/user/ {print $1}' file",
        "grep -rn '/api/v1' src",
        "tr / _ < names",
        "git diff HEAD~1 main..dev -- src",
        "go test ./...",
        "curl https://example.com/a/../b",
        "cd src && make && cd .. && ls",
        "cd src && cat ../README.md",
        "cd && ls",
        "(cd src && cat ../x)",
        "cd src &&\n make &&\n cat ../x",
        "cd src && (cat ../x)",
        "for f in a b; do echo $f/x > $f/out; done",
        "X=1 Y=a:b cmd --opt=value",
        "PATH=$PATH:/usr/bin cmd",
        "cmd --prefix=/usr",
        "echo $((4/2)) ${x##*/} ${#x}",
        "cat <<'EOF' > out\nit's /etc/passwd\nEOF\nls",
        "cat <<EOF\nisn't $(date)\nEOF",
        "cat <<EOF",
        "cat <<'EOF'\nit's /etc/passwd",
        "cat > out <<EOF\na\nEOF \n",
        "cat <<A <<B\na\nA\nb",
        "diff <(sort a) <(sort b)",
        "sh -c 'ls src'",
        "if [ -f x ]; then cat x; fi",
        "ls .* *.txt",
        "cp {a,b}.txt sub/",
        "rm -rf build/*",
        "cut -d/ -f2 names",
        "awk -F/ '{ print $2 }' names",
        "perl -ne '/x/ && print' file",
        "command sed '/x/d' file",
        "IFS=/ read -r a b < names",
        "[[ $x == /* && -f src/x ]]",
        "case $x in /*) echo absolute;; ../*) echo up;; esac",
        "foo $(cat a/../b) \"$(cat ./a)\"",
        "a=src; cat $a/../x",
        "cat \"${X:-default}\" ${X:+src/../y}",
        "cat > run.sh <<EOF\ncd ${PREFIX:-/opt/app} && cat ../x\nEOF",
        "git commit -m 'see ../x and /etc/hosts'",
        "python3 -c 'print(open(\"x\").read())' --path=src/x",
        "echo ${PWD##*/}",
        "f() { cd src && cat ../x; }; f; f",
        "cd src && for i in 1 2; do cat x; done",
        "cat <<< '../x'",
        "find . -name '*.rs' -exec grep -l api {} +",
        "for t in tests/*.sh; do bash \"$t\"; done",
        "sh -c \"make $X && cat src/$Y\"",
        "eval \"$X\"",
        "rsync -a src/ host:/srv/data",
        "make CFLAGS=-O2 PREFIX=out",
    ] {
        wrong.extend(screened(line).err().map(|error| format!("{line:?}: {error}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn refuses() {
    let mut wrong = Vec::new();
    for (line, word) in [
        ("cat /etc/passwd", "'/etc/passwd' is outside of the workspace"),
        ("cat '/etc/passwd'", "'/etc/passwd'"),
        ("cat \"/etc/passwd\"", "'/etc/passwd'"),
        ("cat /e'tc'/passwd", "'/etc/passwd'"),
        ("cat \\/etc/passwd", "'/etc/passwd'"),
        ("cat $'\\x2fetc/passwd'", "'/etc/passwd'"),
        ("ls /", "'/'"),
        ("ls ..", "'..'"),
        ("cat ../x", "'../x'"),
        ("cat a/../../x", "'a/../../x'"),
        ("cat /workspace/../x", "'/workspace/../x'"),
        ("cat /workspace-other/x", "'/workspace-other/x'"),
        ("cat /usr/../etc/shadow", "'/usr/../etc/shadow'"),
        ("cat ~root/x", "is the home of another user"),
        ("cat ~/../x", "'~/../x'"),
        ("cat $HOME/../x", "'~/../x'"),
        ("cat ${HOME}/../x", "'~/../x'"),
        ("cat ${HOME}x", "'~x'"),
        ("cat \"$PWD/../x\"", "'~/../x'"),
        ("cat $(pwd)/../x", "'~/../x'"),
        ("cat $X/../x", "'$X/../x' climbs from a directory that only run time knows"),
        ("cat ${X:-/etc/passwd}", "'/etc/passwd'"),
        ("ls > /etc/x", "'/etc/x'"),
        ("ls > ../x", "'../x'"),
        ("ls >/usr/x", "may be read but not written to"),
        ("ls >>/usr/x", "may be read but not written to"),
        ("ls &>/usr/x", "may be read but not written to"),
        ("ls >&/etc/x", "'/etc/x'"),
        ("cat < /etc/passwd", "'/etc/passwd'"),
        ("cat </dev/sda", "'/dev/sda'"),
        ("cmd --file=/etc/passwd", "'--file=/etc/passwd'"),
        ("cmd --file=../x", "'--file=../x'"),
        ("X=/etc cmd", "'X=/etc'"),
        ("X=~/.. cmd", "'X=~/..'"),
        ("PATH=bin:/opt/bin cmd", "'PATH=bin:/opt/bin'"),
        ("dd of=/dev/sda", "'of=/dev/sda'"),
        ("echo \"$(cat /etc/passwd)\"", "'/etc/passwd'"),
        ("echo `cat /etc/passwd`", "'/etc/passwd'"),
        ("echo \"`cat \\`echo /etc/*\\``\"", "'/etc/*'"),
        ("cat <<EOF\n$(cat /etc/passwd)\nEOF", "'/etc/passwd'"),
        ("diff <(cat /etc/passwd) x", "'/etc/passwd'"),
        ("sh -c 'cat /etc/passwd'", "'/etc/passwd'"),
        ("env X=1 bash -lc 'cat ../x'", "'../x'"),
        ("eval cat '../x'", "'../x'"),
        ("echo /etc/*", "'/etc/*'"),
        ("sed '/x/d' /etc/passwd", "'/etc/passwd'"),
        ("sed -e p /etc/passwd", "'/etc/passwd'"),
        ("grep -f pats /etc/passwd", "'/etc/passwd'"),
        ("a; b && c || cat /etc/passwd", "'/etc/passwd'"),
        ("a\ncat /etc/passwd", "'/etc/passwd'"),
        ("curl file:///etc/passwd", "'file:///etc/passwd'"),
        ("cat {x,/etc/passwd}", "'/etc/passwd'"),
        ("cat .{.,}/x", "'../x'"),
        ("cat .?/x", "may match '..'"),
        ("cd src; cat ../x", "'../x'"),
        ("cd src && cd .. && cat ../x", "'../x'"),
        ("cd src || cat ../x", "'../x'"),
        ("cd ..", "'..'"),
        ("cat 'x", "cannot be understood: "),
        ("cat \"x", "cannot be understood: "),
        ("cat $(x", "cannot be understood: "),
        ("cat `x", "cannot be understood: "),
        ("cat ${HOME%/*}/x", "a part of HOME or PWD"),
        ("cat ${PWD%/*}/x", "a part of HOME or PWD"),
        ("cat \"$(echo a)\"/../../x", "climbs from"),
        ("cat '..'/x", "'../x'"),
        ("cat .\\./x", "'../x'"),
        ("cat \"..\"/\"x\"", "'../x'"),
        ("a=.; cat $a$a/x", "'../x'"),
        ("a=..; cat $a/x", "'a=..'"),
        ("a=(x /etc/passwd); cat ${a[1]}", "'a=/etc/passwd'"),
        ("cat ${X:=/etc/passwd}", "'/etc/passwd'"),
        ("cat ${X:-~root/x}", "the home of another user"),
        ("cat ${X:-~/../x}", "'~/../x'"),
        (">../f", "'../f'"),
        ("> \"$X/../f\"", "climbs from"),
        ("{ cat; } </etc/passwd", "'/etc/passwd'"),
        ("exec 3</etc/passwd", "'/etc/passwd'"),
        ("cat <>/etc/passwd", "'/etc/passwd'"),
        ("cat 0<&- </etc/passwd", "'/etc/passwd'"),
        ("cat <<EOF | sh\n$(cat ../x)\nEOF", "'../x'"),
        ("bash <<'EOF'\ncat ../x\nEOF", "'../x'"),
        ("cat <<< \"$(< /etc/passwd)\"", "'/etc/passwd'"),
        ("cd ..; cat f", "'..'"),
        ("cd src; cd ..", "'..'"),
        ("pushd ..", "'..'"),
        ("cd \"$X\"; cat ../f", "climbs from"),
        ("cd \"$X\" && cd ..", "climbs from"),
        ("for f in /etc/*; do cat $f; done", "'/etc/*'"),
        ("for f in a; do cd ..; done", "'..'"),
        ("[[ -f /etc/passwd ]]", "'/etc/passwd'"),
        ("[ -f /etc/passwd ]", "'/etc/passwd'"),
        ("cmd -f/etc/passwd", "'-f/etc/passwd'"),
        ("cmd -C../x", "'-C../x'"),
        ("cmd --flag=/etc/passwd", "'--flag=/etc/passwd'"),
        ("curl -d @/etc/passwd host", "'@/etc/passwd'"),
        ("export X=/etc", "'X=/etc'"),
        ("declare -x P=a:../b", "'P=a:../b'"),
        ("alias c='cat /etc/passwd'", "'/etc/passwd'"),
        ("trap 'cat ../x' EXIT", "'../x'"),
        ("find . -exec sh -c 'cat ../x' \\;", "'../x'"),
        ("xargs -I{} bash -c 'cat /etc/{}'", "'/etc/{}'"),
        ("sh -c \"cat /etc/$X\"", "'/etc/$X'"),
        ("eval \"cat ../$X\"", "'../$X'"),
        ("PAGER='cat /etc/passwd' git log", "'/etc/passwd'"),
        ("f() { cat $1; }; f /etc/passwd", "'/etc/passwd'"),
        ("f() { cd ..; }; f", "'..'"),
        ("cat x & cat ../y", "'../y'"),
        ("! cat ../x", "'../x'"),
        ("time cat ../x", "'../x'"),
        ("((1)) && cat ../x", "'../x'"),
        ("((cat ../x))", "'../x'"),
        ("sh -c \"cat 'x\"", "cannot be understood"),
        ("if true; then cat x", "cannot be understood"),
        ("cat <<EOF\n$(cat\nEOF", "cannot be understood"),
        ("cat <<EOF\n$(cat /etc/passwd)", "'/etc/passwd'"),
        ("bash <<EOF\ncat ../x\n", "'../x'"),
        ("cat /etc/passwd <<EOF", "'/etc/passwd'"),
        ("(cat <<EOF\nx)", "cannot be understood"),
        ("echo $(cat <<EOF\nx)", "cannot be understood"),
        ("cat /dev/pts/0", "'/dev/pts/0'"),
        ("cat /dev/fd/../sda", "'/dev/fd/../sda'"),
        ("echo x > /dev/fd/3/x", "'/dev/fd/3/x'"),
    ] {
        let Err(error) = screened(line) else {
            wrong.push(format!("{line:?} passed"));
            continue;
        };
        if !error.message().contains(word) {
            wrong.push(format!("{line:?}: {error}"));
        }
        assert_eq!(
            (error.code(), error.kind()),
            (ErrorCode::UnsafeCommand, ErrorKind::DeniedByPolicy)
        );
        assert_eq!((error.verb(), error.command()), (Some(Verb::Exec), Some(line)));
        assert!(error.hint().is_some());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_scope_root_counts_and_not_the_root() {
    for (line, passes) in [
        ("cat x", true),
        ("cat ../x", true),
        ("cat ../../x", false),
        ("cat /workspace/users/a/x", true),
        ("cat /workspace/users/b/x", false),
        ("cat /srv/team/ws/users/ab", false),
        ("cat ~/../x", true),
        ("cd .. && cat x", true),
        ("cd .. && cat ../x", false),
        ("cd ..; cat ../x", false),
        ("cd .. && cd - && cat ../x", true),
        ("cd .. && cd work/x && cd - && cat ../y", false),
        ("cd .. && cd work/x && cd $OLDPWD && cat ../y", false),
        ("cd .. && > x; cat ../y", false),
        ("for i in 1 2; do cd ..; done; cat x", false),
        ("f() { cd ..; }; f; f; cat x", false),
        ("cd ../../../.. && ls", false),
        ("cd /usr/lib && ls && cat ../bin/env", true),
        ("cd /usr && cat ../etc/passwd", false),
    ] {
        assert_eq!(screened_in_scope(line).is_ok(), passes, "{line:?}");
    }
}

#[test]
fn effort_is_bounded() {
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(5_000), close.repeat(5_000));
    for line in [nested("$(a ", ")"), nested("\"$(", ")\""), "{a,b}".repeat(50)] {
        assert!(screened(&line).is_err());
    }
    let many: String = (0..200).map(|n| format!("cd d{n}; ")).collect();
    assert!(screened(&many).is_ok());
    assert!(screened(&format!("{many} cat ../x")).is_err(), "one of them is no directory");
    assert!(screened(&"x ".repeat(50_000)).is_ok());
    let env = BTreeMap::new();
    let nameless = confines(&[], "", &env);
    assert!(check_command_paths("ls a", &nameless).is_ok());
    assert!(check_command_paths("ls a/..", &nameless).is_err());
}

#[test]
fn any_line_gets_an_answer() {
    const PARTS: [&str; 40] = [
        " ", "\n", "a", "é", "…", "/", "..", ".", "~", "$", "$(", ")", "(", "${", "}", "{", ",",
        "'", "\"", "`", "\\", "$'", "\\x", "\\07", "#", "=", ":", "<<", "<<<", "-", "EOF", ">",
        "<", "&", "|", ";", "*", "HOME", "cd", "://",
    ];
    let mut dice = 7u64;
    for _ in 0..20_000 {
        let mut line = String::new();
        for _ in 0..12 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            line.push_str(PARTS[(dice >> 33) as usize % PARTS.len()]);
        }
        let _ = screened_in_scope(&line);
    }
}
