//! The answer of a tool: text for a model, and the same content as a structured value for a
//! program.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject, RequestId};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::media::Media;
use crate::outgoing::Held;

/// The key in the metadata of a failed call's result. Its value contains the error code and kind,
/// for programs.
const ERROR_META: &str = "agent-backend/error";

/// The answer to a call that succeeded.
#[derive(Debug)]
pub(crate) struct ToolAnswer(Said);

#[derive(Debug)]
enum Said {
    Text(Text),
    Blocks { content: Vec<ContentBlock>, structured: Value },
    Media(Media),
}

/// Text for a model. The structured value contains the same text.
#[derive(Debug)]
struct Text {
    text: String,
    note: Option<String>,
    place: NotePlace,
    fields: Map<String, Value>,
}

/// Where a note about the text is placed.
#[derive(Clone, Copy, Debug)]
enum NotePlace {
    Below,
    /// In a separate block, because a program may parse the text.
    SeparateBlock,
}

impl ToolAnswer {
    /// An answer that consists only of text.
    pub(crate) fn text(text: impl Into<String>) -> ToolAnswer {
        ToolAnswer::noted(text.into(), None)
    }

    /// An answer with incomplete text, and a note that says how to get the rest.
    pub(crate) fn noted(text: String, note: Option<String>) -> ToolAnswer {
        let place = NotePlace::Below;
        ToolAnswer(Said::Text(Text { text, note, place, fields: Map::new() }))
    }

    /// An answer with text that a program may parse. The note is placed in a separate block.
    pub(crate) fn in_separate_block(text: String, note: Option<String>) -> ToolAnswer {
        let place = NotePlace::SeparateBlock;
        ToolAnswer(Said::Text(Text { text, note, place, fields: Map::new() }))
    }

    /// Adds a note to the answer.
    pub(crate) fn and_note(mut self, note: String) -> ToolAnswer {
        match &mut self.0 {
            Said::Text(text) => {
                text.note = Some(match text.note.take() {
                    Some(first) => format!("{first}; {note}"),
                    None => note,
                });
            }
            Said::Blocks { content, .. } => content.push(ContentBlock::text(format!("[{note}]"))),
            Said::Media(media) => media.note = Some(note),
        }
        self
    }

    /// Replaces the note by the result of `map`.
    pub(crate) fn map_note(mut self, map: impl FnOnce(String) -> String) -> ToolAnswer {
        if let Said::Text(text) = &mut self.0 {
            text.note = text.note.take().map(map);
        }
        self
    }

    /// An answer with the bytes of a file.
    pub(crate) fn media(media: Media) -> ToolAnswer {
        ToolAnswer(Said::Media(media))
    }

    /// An answer with text for a model and a different value for programs.
    pub(crate) fn with_value(text: String, structured: Value) -> ToolAnswer {
        ToolAnswer(Said::Blocks { content: vec![ContentBlock::text(text)], structured })
    }

    /// Adds a field to the structured value.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> ToolAnswer {
        let fields = match &mut self.0 {
            Said::Text(text) => Some(&mut text.fields),
            Said::Blocks { structured, .. } => structured.as_object_mut(),
            Said::Media(_) => None,
        };
        if let Some(fields) = fields {
            fields.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Adds a field to the structured value, if `value` is `Some`.
    pub(crate) fn with_some(self, name: &str, value: Option<impl Into<Value>>) -> ToolAnswer {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The approximate size of the answer as a message, in bytes. Zero for answers that cannot be
    /// large.
    pub(crate) fn weight(&self) -> usize {
        match &self.0 {
            Said::Text(text) => 2 * text.text.len(),
            // The output of commands has already been limited.
            Said::Blocks { .. } => 0,
            Said::Media(media) => media.weight(),
        }
    }

    /// Takes the memory reservation that was made for the answer in advance.
    pub(crate) fn take_room(&mut self) -> Option<Held> {
        match &mut self.0 {
            Said::Media(media) => media.room.take(),
            Said::Text(_) | Said::Blocks { .. } => None,
        }
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        let (content, structured) = match self.0 {
            Said::Text(text) => {
                let (content, structured) = text.into_blocks();
                (content, Some(structured))
            }
            Said::Blocks { content, structured } => (content, Some(structured)),
            Said::Media(media) => (media.into_blocks(), None),
        };
        let mut result = CallToolResult::success(content);
        result.is_error = None;
        result.structured_content = structured;
        result
    }

    /// Converts the answer to the result of a failed call.
    pub(crate) fn into_error(self) -> CallToolResult {
        let mut result = self.into_result();
        result.is_error = Some(true);
        result
    }

    /// Converts the answer to the whole JSON-RPC response to a call. The text occurs twice in the
    /// response, but is encoded only once.
    pub(crate) fn into_response(self, id: &RequestId) -> serde_json::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(match &self.0 {
            Said::Text(text) => 2 * (text.text.len() + text.text.len() / 8) + 512,
            // `write` reserves exactly the capacity that it needs.
            Said::Media(_) | Said::Blocks { .. } => 128,
        });
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        serde_json::to_writer(&mut out, id)?;
        out.extend_from_slice(br#","result":"#);
        match self.0 {
            Said::Text(text) => text.write(&mut out)?,
            Said::Media(media) => media.write(&mut out)?,
            said @ Said::Blocks { .. } => {
                serde_json::to_writer(&mut out, &plain(ToolAnswer(said).into_result()))?;
            }
        }
        out.push(b'}');
        Ok(out)
    }
}

/// Removes the type of the result. The type exists only in protocol revisions without a handshake,
/// since 2026-07-28.
pub(crate) fn plain(mut result: CallToolResult) -> CallToolResult {
    result.result_type = None;
    result
}

impl Text {
    fn into_blocks(self) -> (Vec<ContentBlock>, Value) {
        let (below, in_separate_block) = (self.below(), self.in_separate_block());
        let Text { text, note, place: _, fields } = self;
        let mut structured = json!({ "content": text });
        if let Value::Object(all) = &mut structured {
            all.extend(note.map(|note| ("note".to_owned(), json!(note))));
            all.extend(fields);
        }
        let mut content = vec![ContentBlock::text(text + &below)];
        content.extend(in_separate_block.map(ContentBlock::text));
        (content, structured)
    }

    /// The text that follows in the same block. This is the note, if the note belongs there.
    fn below(&self) -> String {
        match (&self.note, self.place) {
            (Some(note), NotePlace::Below) => {
                let whole_line = self.text.is_empty() || self.text.ends_with('\n');
                format!("{}[{note}]", if whole_line { "" } else { "\n" })
            }
            (Some(_), NotePlace::SeparateBlock) | (None, _) => String::new(),
        }
    }

    /// The note, if it belongs in a separate block.
    fn in_separate_block(&self) -> Option<String> {
        match self.place {
            NotePlace::Below => None,
            NotePlace::SeparateBlock => self.note.as_ref().map(|note| format!("[{note}]")),
        }
    }

    /// Writes the same content as [`into_blocks`](Text::into_blocks), directly as JSON.
    fn write(self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let (below, in_separate_block) = (self.below(), self.in_separate_block());
        let Text { text, note, place: _, fields } = self;
        out.extend_from_slice(br#"{"content":[{"type":"text","text":"#);
        let begin = out.len();
        serde_json::to_writer(&mut *out, &text)?;
        // Remove the quotes around the encoded text.
        let written = begin + 1..out.len() - 1;
        out.truncate(written.end);
        let below = serde_json::to_string(&below)?;
        out.extend_from_slice(&below.as_bytes()[1..below.len() - 1]);
        out.extend_from_slice(br#""}"#);
        if let Some(note) = in_separate_block {
            out.extend_from_slice(br#",{"type":"text","text":"#);
            serde_json::to_writer(&mut *out, &note)?;
            out.push(b'}');
        }
        out.extend_from_slice(br#"],"structuredContent":{"content":""#);
        out.extend_from_within(written);
        out.push(b'"');
        if let Some(note) = &note {
            write_field(out, "note", note)?;
        }
        for (name, value) in &fields {
            write_field(out, name, value)?;
        }
        out.extend_from_slice(b"}}");
        Ok(())
    }
}

fn write_field(
    out: &mut Vec<u8>,
    name: &str,
    value: &(impl Serialize + ?Sized),
) -> serde_json::Result<()> {
    out.push(b',');
    serde_json::to_writer(&mut *out, name)?;
    out.push(b':');
    serde_json::to_writer(&mut *out, value)
}

/// The result of a failed call: a text for a model, and code and kind for programs.
pub(crate) fn refusal(text: String, code: &str, kind: &str) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    let mut meta = Map::new();
    meta.insert(ERROR_META.to_owned(), json!({ "code": code, "kind": kind }));
    result.meta = Some(MetaObject(meta));
    result
}

/// Adds the id of the approval that the caller must wait for before it repeats the call.
pub(crate) fn waiting_for(mut result: CallToolResult, approval: &str) -> CallToolResult {
    if let Some(meta) = &mut result.meta
        && let Some(error) = meta.0.get_mut(ERROR_META)
    {
        error["approval"] = approval.into();
    }
    result
}

/// Joins rows, up to `bound` bytes. Returns the text, the number of rows in the text, and whether
/// the text contains all rows.
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
        let answer = ToolAnswer::noted("a".to_owned(), Some("more below".to_owned()));
        let result = answer.into_result();
        assert_eq!(result.content[0].as_text().unwrap().text, "a\n[more below]");
        assert_eq!(result.structured_content.unwrap()["content"], "a");
    }

    #[test]
    fn written_by_hand_it_says_the_same() {
        let text = "one \"two\"\n\\three\u{1}\u{e4}\n";
        let note = || Some("a \"note\"".to_owned());
        for make in [
            || ToolAnswer::text(""),
            || ToolAnswer::text("plain"),
            || ToolAnswer::with_value("a".to_owned(), json!({ "b": [1, null] })),
        ] {
            compare(make);
        }
        for text in ["", "plain", text] {
            compare(|| ToolAnswer::noted(text.to_owned(), note()));
            compare(|| {
                ToolAnswer::in_separate_block(text.to_owned(), note())
                    .with("n", 1)
                    .with("\"q\"", "v\n")
            });
            compare(|| ToolAnswer::noted(text.to_owned(), None).with_some("x", None::<u64>));
        }
    }

    fn compare(make: impl Fn() -> ToolAnswer) {
        let id = RequestId::String("a\"b".into());
        let by_hand: Value = serde_json::from_slice(&make().into_response(&id).unwrap()).unwrap();
        let result = plain(make().into_result());
        let expect = json!({ "jsonrpc": "2.0", "id": "a\"b", "result": result });
        assert_eq!(by_hand, expect);
    }
}
