//! What a tool answers: text for a model, the same as a value for a program.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value, json};

use crate::media::Media;

/// Where the result of a failed call says which failure it was, for programs.
const ERROR_META: &str = "agent-backend/error";

/// A successful call.
#[derive(Debug)]
pub(crate) struct Answer(Said);

#[derive(Debug)]
enum Said {
    Blocks { content: Vec<ContentBlock>, structured: Value },
    Media(Media),
}

impl Answer {
    /// Text, which is all there is to say.
    pub(crate) fn text(text: impl Into<String>) -> Answer {
        let text = text.into();
        Answer::blocks(vec![ContentBlock::text(text.clone())], json!({ "content": text }))
    }

    /// Text that is only a part, with a note on how to get the rest.
    pub(crate) fn noted(text: String, note: Option<String>) -> Answer {
        let Some(note) = note else { return Answer::text(text) };
        let structured = json!({ "content": text, "note": note });
        let mut shown = text;
        if !shown.is_empty() && !shown.ends_with('\n') {
            shown.push('\n');
        }
        shown.push_str(&format!("[{note}]"));
        Answer::blocks(vec![ContentBlock::text(shown)], structured)
    }

    /// Text that a program may parse, so that a note has to stand beside it.
    pub(crate) fn beside(text: String, note: Option<String>) -> Answer {
        let structured = json!({ "content": text });
        let mut content = vec![ContentBlock::text(text)];
        content.extend(note.as_ref().map(|note| ContentBlock::text(format!("[{note}]"))));
        let answer = Answer::blocks(content, structured);
        match note {
            Some(note) => answer.with("note", note),
            None => answer,
        }
    }

    /// Blocks that are not text, with their value.
    pub(crate) fn blocks(content: Vec<ContentBlock>, structured: Value) -> Answer {
        Answer(Said::Blocks { content, structured })
    }

    /// The bytes of a file.
    pub(crate) fn media(media: Media) -> Answer {
        Answer(Said::Media(media))
    }

    /// Text for a model and another value for programs.
    pub(crate) fn with_value(text: String, structured: Value) -> Answer {
        Answer::blocks(vec![ContentBlock::text(text)], structured)
    }

    /// One more field of the value.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Answer {
        if let Said::Blocks { structured: Value::Object(fields), .. } = &mut self.0 {
            fields.insert(name.to_owned(), value.into());
        }
        self
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        let (content, structured) = match self.0 {
            Said::Blocks { content, structured } => (content, structured),
            Said::Media(media) => media.into_blocks(),
        };
        let mut result = CallToolResult::success(content);
        result.is_error = None;
        result.structured_content = Some(structured);
        result
    }

    /// The media, where that is what it is.
    pub(crate) fn into_media(self) -> Result<Media, Answer> {
        match self.0 {
            Said::Media(media) => Ok(media),
            said @ Said::Blocks { .. } => Err(Answer(said)),
        }
    }

    /// The same as the result of a call that did not work.
    pub(crate) fn into_error(self) -> CallToolResult {
        let mut result = self.into_result();
        result.is_error = Some(true);
        result
    }
}

/// The result of a call that failed: a text for a model, code and kind for programs.
pub(crate) fn refusal(text: String, code: &str, kind: &str) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    let mut meta = Map::new();
    meta.insert(ERROR_META.to_owned(), json!({ "code": code, "kind": kind }));
    result.meta = Some(MetaObject(meta));
    result
}

/// Rows up to a bound, and whether all of them were there.
pub(crate) fn joined(
    rows: impl IntoIterator<Item = String>,
    bound: usize,
) -> (String, usize, bool) {
    let mut text = String::new();
    let mut shown = 0;
    for row in rows {
        if !text.is_empty() && text.len() + row.len() + 1 > bound {
            return (text, shown, false);
        }
        if shown > 0 {
            text.push('\n');
        }
        text.push_str(&row);
        shown += 1;
    }
    (text, shown, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_at_the_bound_and_never_with_none() {
        let rows = || ["aaaa".to_owned(), "bb".to_owned(), "c".to_owned()];
        assert_eq!(joined(rows(), 100), ("aaaa\nbb\nc".to_owned(), 3, true));
        assert_eq!(joined(rows(), 7), ("aaaa\nbb".to_owned(), 2, false));
        assert_eq!(joined(rows(), 1), ("aaaa".to_owned(), 1, false));
        assert_eq!(joined([], 1), (String::new(), 0, true));
    }

    #[test]
    fn a_note_follows_text_and_stays_out_of_its_value() {
        let answer = Answer::noted("a".to_owned(), Some("more below".to_owned()));
        let result = answer.into_result();
        assert_eq!(result.content[0].as_text().unwrap().text, "a\n[more below]");
        assert_eq!(result.structured_content.unwrap()["content"], "a");
    }
}
