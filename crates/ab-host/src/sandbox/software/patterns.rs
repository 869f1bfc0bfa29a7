//! What is known of commands and words by their looks: changes of directory, shells in shells,
//! arguments that are no paths though they look like some.

use super::words::{Atom, Token, Word, text};

/// Words that stand before a command without being one.
const KEYWORDS: [&str; 13] = [
    "if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "command", "builtin",
    "exec",
];
/// Commands whose first argument is a script or a pattern, and the option letters that take it from
/// elsewhere.
const SCRIPTED: [&str; 9] = ["sed", "grep", "egrep", "fgrep", "rg", "awk", "gawk", "mawk", "nawk"];
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "busybox"];

/// A change of directory.
pub(super) enum Moved<'a> {
    Home,
    /// To where it was before.
    Back,
    To(&'a Word),
}

/// Whether something in the line may run more than once.
pub(super) fn may_repeat(tokens: &[Token]) -> bool {
    let repeats = |token: &Token| match token {
        Token::Word(word) => {
            matches!(text(word).as_str(), "for" | "while" | "until" | "select" | "function")
        }
        _ => false,
    };
    let defines = |pair: &[Token]| pair == [Token::Operator("("), Token::Operator(")")];
    tokens.iter().any(repeats) || tokens.windows(2).any(defines)
}

/// Where the name of the command is, after keywords and assignments.
pub(super) fn command_start(words: &[Word]) -> usize {
    let before = |word: &&Word| is_assignment(word) || KEYWORDS.contains(&text(word).as_str());
    words.iter().take_while(before).count()
}

/// `NAME=value`.
pub(super) fn is_assignment(word: &[Atom]) -> bool {
    let text = text(word);
    text.split_once('=').is_some_and(|(name, _)| {
        let name = name.strip_suffix('+').unwrap_or(name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// The words of a command, by number, that cannot be paths whatever they look like.
pub(super) fn harmless(words: &[Word]) -> Vec<usize> {
    let Some(name) = words.first() else { return Vec::new() };
    let name = text(name);
    let name = name.rsplit('/').next().unwrap_or(&name);
    match name {
        // What a pattern matches would be told.
        "echo" | "printf" => (1..words.len()).filter(|at| !has_glob(&words[*at])).collect(),
        "tr" => (1..words.len()).collect(),
        name if SCRIPTED.contains(&name) => scripts(words),
        _ => Vec::new(),
    }
}

fn has_glob(word: &[Atom]) -> bool {
    word.iter().any(|atom| matches!(atom, Atom::Glob(_)))
}

/// The script among the arguments: the first that is no option, unless options bring it.
fn scripts(words: &[Word]) -> Vec<usize> {
    let texts: Vec<String> = words.iter().map(|word| text(word)).collect();
    let mut found = Vec::new();
    let mut brought = false;
    let mut first = None;
    let mut at = 1;
    while at < texts.len() {
        let long = texts[at].starts_with("--");
        match texts[at].strip_prefix('-').filter(|rest| !rest.is_empty()) {
            Some(option) if long => {
                brought |=
                    ["-expression", "-regexp", "-file"].iter().any(|it| option.starts_with(it));
            }
            Some(option) if option.ends_with('e') => {
                brought = true;
                at += 1;
                found.push(at);
            }
            Some(option) if option.contains('f') || option.contains('e') => brought = true,
            // awk's separator and variables.
            Some("F" | "v") => at += 1,
            Some(_) => {}
            None => first = first.or(Some(at)),
        }
        at += 1;
    }
    found.extend(first.filter(|_| !brought));
    found
}

/// The line that a command gives to another shell.
pub(super) fn shell_line(words: &[Word]) -> Option<String> {
    let texts: Vec<String> = words.iter().map(|word| text(word)).collect();
    let name = texts.first()?.rsplit('/').next()?;
    if name == "eval" {
        return Some(texts[1..].join(" "));
    }
    let shell = texts.iter().position(|word| {
        word.rsplit('/').next().is_some_and(|program| SHELLS.contains(&program))
    })?;
    let option =
        |word: &String| word.starts_with('-') && !word.starts_with("--") && word.contains('c');
    let command = texts[shell..].iter().position(option)?;
    texts.get(shell + command + 1).cloned()
}

/// Whether the command changes the directory, and where to.
pub(super) fn moved(words: &[Word]) -> Option<Moved<'_>> {
    let (name, arguments) = words.split_first()?;
    let name = text(name);
    if !matches!(name.as_str(), "cd" | "chdir" | "pushd" | "popd") {
        return None;
    }
    let option = |word: &&Word| {
        let text = text(word);
        text.len() > 1 && text.starts_with('-')
    };
    let target = arguments.iter().find(|word| !option(word));
    Some(match target {
        _ if name == "popd" => Moved::Back,
        None if name == "pushd" => Moved::Back,
        None => Moved::Home,
        Some(word) if text(word) == "-" => Moved::Back,
        Some(word) => Moved::To(word),
    })
}

/// The rest of `word` after `prefix`.
pub(super) fn after<'a>(word: &'a [Atom], prefix: &str) -> Option<&'a [Atom]> {
    let length = prefix.chars().count();
    let begins = prefix.chars().zip(word).all(|(c, atom)| *atom == Atom::Char(c));
    (begins && word.len() >= length).then(|| &word[length..])
}

/// Whether the segment is a pattern that some shells match with `..`. A bare `.*` at the end is
/// what people write for hidden files.
pub(super) fn may_match_parent(segment: &[Atom], word: &[Atom]) -> bool {
    let dots = segment.first() == Some(&Atom::Char('.'))
        && has_glob(segment)
        && segment.len() <= 6
        && segment
            .iter()
            .all(|atom| matches!(atom, Atom::Glob(_) | Atom::Char('.' | ']' | '!' | '^')));
    let hidden = [Atom::Char('.'), Atom::Glob('*')];
    dots && !(segment == hidden && word.ends_with(&hidden))
}
