//! Brace expansion: `{a,b}/c` is two words.

use super::{Atom, Word};

/// Most words that one may become.
const MOST: usize = 256;

/// The words that `word` becomes, or nothing when they are too many.
pub(in super::super) fn alternatives(word: &[Atom]) -> Option<Vec<Word>> {
    let mut done = Vec::new();
    let mut waiting = vec![word.to_vec()];
    while let Some(word) = waiting.pop() {
        match first_choice(&word) {
            Some(choices) => waiting.extend(choices),
            None => done.push(word),
        }
        if waiting.len() + done.len() > MOST {
            return None;
        }
    }
    Some(done)
}

/// The words that the first pair of braces with a comma makes of `word`.
fn first_choice(word: &[Atom]) -> Option<Vec<Word>> {
    let opens = word.iter().enumerate().filter(|(_, atom)| **atom == Atom::Brace('{'));
    opens.into_iter().find_map(|(open, _)| {
        let (commas, close) = inside(word, open)?;
        let mut starts = vec![open + 1];
        starts.extend(commas.iter().map(|comma| comma + 1));
        let ends = commas.iter().copied().chain([close]);
        let choice = |(start, end): (usize, usize)| {
            [&word[..open], &word[start..end], &word[close + 1..]].concat()
        };
        (!commas.is_empty()).then(|| starts.into_iter().zip(ends).map(choice).collect())
    })
}

/// Where the commas and the end of the braces that begin at `open` are.
fn inside(word: &[Atom], open: usize) -> Option<(Vec<usize>, usize)> {
    let (mut depth, mut commas) = (0, Vec::new());
    for (at, atom) in word.iter().enumerate().skip(open + 1) {
        match atom {
            Atom::Brace('{') => depth += 1,
            Atom::Brace('}') if depth == 0 => return Some((commas, at)),
            Atom::Brace('}') => depth -= 1,
            Atom::Brace(',') if depth == 0 => commas.push(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn braces_become_words() {
        let word = |text: &str| -> Word {
            let atom = |c| if "{,}".contains(c) { Atom::Brace(c) } else { Atom::Char(c) };
            text.chars().map(atom).collect()
        };
        for (given, expect) in [
            ("a", "a"),
            ("{a,b}/c", "a/c b/c"),
            ("x{a,{b,c}}y", "xay xby xcy"),
            ("{a}", "{a}"),
            ("{1..3}", "{1..3}"),
            ("{a,b", "{a,b"),
            ("{x}{a,b}", "{x}a {x}b"),
            (".{.,}/x", "../x ./x"),
        ] {
            let mut words: Vec<String> =
                alternatives(&word(given)).unwrap().iter().map(|word| text(word)).collect();
            let mut expect: Vec<&str> = expect.split(' ').collect();
            words.sort();
            expect.sort_unstable();
            assert_eq!(words, expect, "{given}");
        }
        assert!(alternatives(&word(&"{a,b}".repeat(20))).is_none());
    }
}
