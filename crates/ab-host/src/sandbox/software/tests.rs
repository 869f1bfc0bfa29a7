//! Lines that pass and lines that do not.

use ab_core::PathRules;

use super::*;

fn screened(line: &str, cwd: &str, fence: &str) -> Result<(), Error> {
    let path = |raw: &str| PathRules::lenient().parse(raw).unwrap();
    let roots = ["/srv/team/ws".to_owned(), "/workspace".to_owned()];
    let place = Place {
        roots: &roots,
        fence: &path(fence),
        cwd: &path(cwd),
        readable: &["/usr", "/bin", "/lib", "/etc/ssl"],
    };
    screen(line, &place)
}

#[test]
fn accepts() {
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
        "diff <(sort a) <(sort b)",
        "sh -c 'ls src'",
        "if [ -f x ]; then cat x; fi",
        "ls .* *.txt",
        "cp {a,b}.txt sub/",
        "rm -rf build/*",
    ] {
        if let Err(error) = screened(line, ".", ".") {
            panic!("{line:?}: {error}");
        }
    }
}

#[test]
fn refuses() {
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
        ("cat $HOME/../x", "'$HOME/../x'"),
        ("cat ${HOME}/../x", "'$HOME/../x'"),
        ("cat ${HOME}x", "'$HOMEx'"),
        ("cat \"$PWD/../x\"", "'$PWD/../x'"),
        ("cat $(pwd)/../x", "'$PWD/../x'"),
        ("cat $X/../x", "'$…/../x'"),
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
        ("cat {x,/etc/passwd}", "'{x,/etc/passwd}'"),
        ("cat .{.,}/x", "'.{.,}/x'"),
        ("cat .?/x", "may match '..'"),
        ("cd src; cat ../x", "'../x'"),
        ("cd src && cd .. && cat ../x", "'../x'"),
        ("cd src || cat ../x", "'../x'"),
        ("cd ..", "'..'"),
        ("cat 'x", "a single quote is not closed"),
        ("cat \"x", "a double quote is not closed"),
        ("cat $(x", "a parenthesis is not closed"),
        ("cat `x", "a backquote is not closed"),
        ("cat ${HOME%/*}/x", "a part of HOME or PWD"),
    ] {
        let Err(error) = screened(line, ".", ".") else { panic!("{line:?} passed") };
        assert!(error.message().contains(word), "{line:?}: {error}");
        assert_eq!((error.code(), error.kind()), (Code::UnsafeCommand, Kind::Denied));
        assert_eq!((error.verb(), error.command()), (Some(Verb::Exec), Some(line)));
        assert!(error.hint().is_some());
    }
}

#[test]
fn the_fence_counts_and_not_the_root() {
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
        ("cd .. && cd - && cat ../x", false),
        ("cd .. && cd work/x && cd - && cat ../y", false),
        ("cd .. && cd work/x && cd $OLDPWD && cat ../y", false),
        ("cd .. && > x; cat ../y", false),
        ("for i in 1 2; do cd ..; done; cat x", false),
        ("f() { cd ..; }; f; f; cat x", false),
        ("cd ../../../.. && ls", false),
        ("cd /usr/lib && ls && cat ../bin/env", true),
        ("cd /usr && cat ../etc/passwd", false),
    ] {
        assert_eq!(screened(line, "users/a/work", "users/a").is_ok(), passes, "{line:?}");
    }
}

#[test]
fn effort_is_bounded() {
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(5_000), close.repeat(5_000));
    for line in [nested("$(a ", ")"), nested("\"$(", ")\""), "{a,b}".repeat(50)] {
        assert!(screened(&line, ".", ".").is_err());
    }
    let many: String = (0..200).map(|n| format!("cd d{n}; ")).collect();
    assert!(screened(&many, ".", ".").is_err());
    assert!(screened(&"x ".repeat(50_000), ".", ".").is_ok());
    let place = Place { roots: &[], fence: &WsPath::root(), cwd: &WsPath::root(), readable: &[] };
    assert!(screen("ls a", &place).is_ok());
    assert!(screen("ls a/..", &place).is_err());
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
        let _ = screened(&line, "a", "a");
    }
}
