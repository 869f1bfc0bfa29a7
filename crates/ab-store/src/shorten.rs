//! Cuts the texts of an event that is too large for the log.

use std::fmt::Write;

use serde_json::Value;

/// The shortest limit on each text that is tried. Ids and names of statuses are shorter, so they
/// are never cut.
const MIN_TEXT: usize = 256;

/// Cuts the longest texts of an event, so that its JSON has at most `limit` bytes. Each of them then
/// ends with a note about how much was left out. Returns `None` if this is not enough.
pub(crate) fn shortened_event(json: &str, limit: usize) -> Option<String> {
    let event: Value = serde_json::from_str(json).ok()?;
    let limits = std::iter::successors(Some(limit / 2), |most| Some(most / 2));
    limits.take_while(|most| *most >= MIN_TEXT).find_map(|most| {
        let mut event = event.clone();
        cut_texts(&mut event, most);
        Some(event.to_string()).filter(|json| json.len() <= limit)
    })
}

fn cut_texts(value: &mut Value, most: usize) {
    match value {
        Value::String(text) => cut(text, most),
        Value::Array(items) => items.iter_mut().for_each(|item| cut_texts(item, most)),
        Value::Object(members) => members.values_mut().for_each(|value| cut_texts(value, most)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Cuts a text to `most` bytes of JSON.
fn cut(text: &mut String, most: usize) {
    let mut size = 0;
    let end = text.char_indices().find_map(|(at, c)| {
        size += json_bytes(c);
        (size > most).then_some(at)
    });
    if let Some(end) = end {
        let left_out = text.len() - end;
        text.truncate(end);
        // Writing to a string cannot fail.
        let _ = write!(text, "\n… ({left_out} more bytes)");
    }
}

/// The number of bytes of a character in a JSON string.
fn json_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_until_the_event_fits() {
        let check = |event: Value, expect: Option<Value>| {
            let json = shortened_event(&event.to_string(), 2000);
            assert!(json.as_ref().is_none_or(|json| json.len() <= 2000), "{json:?}");
            let shortened = json.map(|json| serde_json::from_str::<Value>(&json).expect("JSON"));
            assert_eq!(shortened, expect);
        };
        let cut = |text: &str, kept, left_out| {
            format!("{}\n… ({left_out} more bytes)", text.repeat(kept))
        };
        check(
            serde_json::json!({ "type": "log", "message": "x".repeat(3000), "short": "y" }),
            Some(
                serde_json::json!({ "type": "log", "message": cut("x", 1000, 2000), "short": "y" }),
            ),
        );
        check(
            serde_json::json!({ "in": "\u{1}".repeat(500), "out": ["é".repeat(2000)] }),
            Some(serde_json::json!({
                "in": cut("\u{1}", 83, 417), "out": [cut("é", 250, 3500)]
            })),
        );
        check(serde_json::json!({ "hosts": vec!["x".repeat(100); 30] }), None);
    }
}
