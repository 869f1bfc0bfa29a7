//! Brace expansion, which is done before all other expansions and can turn one word into several.

use crate::shell::Meter;
use crate::shell::tree::Part;

/// Maximum number of words that a single word may expand to.
pub(crate) const MAX_BRACE_WORDS: usize = 4_096;

/// How many numbers of a sequence are expanded. A longer sequence is represented by its first
/// numbers and its last number, because the other numbers have the same form.
const TOLD_APART: usize = 16;

/// Maximum number of braces in one word.
const MAX_BRACES: usize = 256;

/// The words that `parts` expand to. `None` if there are too many.
pub(super) fn expand(parts: &[Part], meter: &Meter) -> Option<Vec<Vec<Part>>> {
    let braces = parts.iter().filter(|part| **part == Part::Brace('{')).count();
    if braces > MAX_BRACES { None } else { groups(parts, meter) }
}

fn groups(parts: &[Part], meter: &Meter) -> Option<Vec<Vec<Part>>> {
    // Searching the matching brace may compare each brace with everything inside it.
    let braces = parts.iter().filter(|part| **part == Part::Brace('{')).count();
    if !meter.spend((braces + 1) * parts.len()) {
        return None;
    }
    let Some((open, close)) = first_group(parts) else {
        return Some(vec![parts.to_vec()]);
    };
    let mut words = Vec::new();
    let tails = groups(&parts[close + 1..], meter)?;
    let before: usize = parts[..open].iter().map(weight).sum();
    for middle in alternatives(&parts[open + 1..close])? {
        for middle in groups(&middle, meter)? {
            let middles: usize = middle.iter().map(weight).sum();
            for tail in &tails {
                let tails: usize = tail.iter().map(weight).sum();
                if !meter.spend(before + middles + tails) {
                    return None;
                }
                let mut word = parts[..open].to_vec();
                word.extend(middle.iter().cloned());
                word.extend(tail.iter().cloned());
                words.push(word);
                if words.len() > MAX_BRACE_WORDS {
                    return None;
                }
            }
        }
    }
    Some(words)
}

/// The cost of copying a part, in units of the meter.
fn weight(part: &Part) -> usize {
    16 + match part {
        Part::Bare(text) | Part::Quoted(text) | Part::Tilde(text) => text.len(),
        Part::Brace(_) => 1,
        Part::Variable { source, .. }
        | Part::Substitution { source, .. }
        | Part::Process { source, .. }
        | Part::Arithmetic { source, .. } => 4 * source.len(),
    }
}

/// The first pair of matching braces that contains a comma or a sequence.
fn first_group(parts: &[Part]) -> Option<(usize, usize)> {
    let mut opens: Vec<usize> = Vec::new();
    let mut best: Option<(usize, usize)> = None;
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Brace('{') => opens.push(at),
            Part::Brace('}') => {
                let Some(open) = opens.pop() else { continue };
                let inside = &parts[open + 1..at];
                let expands = has_comma(inside) || sequence(inside).is_some();
                if expands && best.is_none_or(|(first, _)| open < first) {
                    best = Some((open, at));
                    if opens.is_empty() {
                        return best;
                    }
                }
            }
            _ => {}
        }
    }
    best
}

fn has_comma(inside: &[Part]) -> bool {
    let mut depth = 0;
    inside.iter().any(|part| {
        match part {
            Part::Brace('{') => depth += 1,
            Part::Brace('}') => depth -= 1,
            _ => {}
        }
        depth == 0 && *part == Part::Brace(',')
    })
}

fn alternatives(inside: &[Part]) -> Option<Vec<Vec<Part>>> {
    if let Some(words) = sequence(inside) {
        return (words.len() <= MAX_BRACE_WORDS)
            .then(|| words.into_iter().map(|word| vec![Part::Bare(word)]).collect());
    }
    let mut found = vec![Vec::new()];
    let mut depth = 0;
    for part in inside {
        match part {
            Part::Brace('{') => depth += 1,
            Part::Brace('}') => depth -= 1,
            _ => {}
        }
        match (part, found.last_mut()) {
            (Part::Brace(','), _) if depth == 0 => found.push(Vec::new()),
            (part, Some(last)) => last.push(part.clone()),
            (_, None) => {}
        }
    }
    Some(found)
}

/// Expands a sequence such as `1..5` or `a..e`, with an optional step.
fn sequence(inside: &[Part]) -> Option<Vec<String>> {
    let [Part::Bare(text)] = inside else { return None };
    let mut ends = text.splitn(3, "..");
    let (from, to) = (ends.next()?, ends.next()?);
    let step: i64 = ends.next().map_or(Some(1), |step| step.parse().ok())?;
    let step = usize::try_from(step.unsigned_abs().max(1)).ok()?;
    if let (Ok(from), Ok(to)) = (from.parse::<i64>(), to.parse::<i64>()) {
        let count = usize::try_from(from.abs_diff(to) / step as u64).ok()?;
        let sign = if from <= to { 1 } else { -1 };
        let number = |n: usize| {
            let distance = i64::try_from(n.checked_mul(step)?).ok()?;
            from.checked_add(sign * distance).map(|number| number.to_string())
        };
        let shown = (0..=count.min(TOLD_APART)).chain((count > TOLD_APART).then_some(count));
        return shown.map(number).collect();
    }
    let one = |text: &str| {
        let mut chars = text.chars();
        let c = chars.next().filter(char::is_ascii_alphabetic)?;
        chars.next().is_none().then_some(c as u8)
    };
    let (from, to) = (one(from)?, one(to)?);
    let letters: Vec<u8> =
        if from <= to { (from..=to).collect() } else { (to..=from).rev().collect() };
    Some(letters.into_iter().step_by(step).map(|letter| (letter as char).to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<Vec<String>> {
        let parts: Vec<Part> = text
            .chars()
            .map(|c| match c {
                '{' | ',' | '}' => Part::Brace(c),
                c => Part::Bare(c.to_string()),
            })
            .fold(Vec::new(), |mut parts, part| {
                match (parts.last_mut(), part) {
                    (Some(Part::Bare(text)), Part::Bare(more)) => text.push_str(&more),
                    (_, part) => parts.push(part),
                }
                parts
            });
        let word = |parts: Vec<Part>| {
            parts
                .iter()
                .map(|part| match part {
                    Part::Bare(text) => text.clone(),
                    Part::Brace(c) => c.to_string(),
                    _ => String::new(),
                })
                .collect()
        };
        Some(expand(&parts, &Meter::default())?.into_iter().map(word).collect())
    }

    #[test]
    fn words_are_those_of_bash() {
        for (text, expect) in [
            ("{rm,-rf,/}", "rm -rf /"),
            ("a{b,c}d", "abd acd"),
            ("{a,b}{1,2}", "a1 a2 b1 b2"),
            ("{a,{b,c}}", "a b c"),
            ("{1..3}", "1 2 3"),
            ("{3..1}", "3 2 1"),
            ("{a..e..2}", "a c e"),
            ("{a}", "{a}"),
            ("{}", "{}"),
            ("{a,b", "{a,b"),
            ("a,b", "a,b"),
            ("{,x}", " x"),
        ] {
            assert_eq!(shown(text).unwrap().join(" "), expect, "{text}");
        }
        let long = shown("a{1..100000}").unwrap();
        assert_eq!((long[0].as_str(), long.last().unwrap().as_str()), ("a1", "a100000"));
        assert_eq!(shown("{1..9223372036854775807}").unwrap().len(), TOLD_APART + 2);
        assert_eq!(shown("{1..500}{1..500}").unwrap().len(), (TOLD_APART + 2).pow(2));
        assert_eq!(shown(&"{a,b}".repeat(13)), None);
    }
}
