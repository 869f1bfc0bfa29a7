//! The bytes of a file as an answer: base64 in one block, without a structured value. Some clients
//! show a model only the structured value of an answer, if there is one. The picture would then be
//! hidden.
//!
//! A file may be large, so its bytes are encoded directly into the answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rmcp::model::{ContentBlock, ResourceContents};

use crate::outgoing::Held;

#[derive(Debug)]
pub(crate) struct Media {
    pub(crate) kind: Kind,
    pub(crate) mime: &'static str,
    pub(crate) bytes: Bytes,
    /// The memory reservation, which is made before the bytes are read.
    pub(crate) room: Option<Held>,
    /// A note that is shown in a separate block.
    pub(crate) note: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Image,
    Audio,
    /// Any other file: an embedded resource with this URI.
    Resource(String),
}

impl Media {
    pub(crate) fn into_blocks(self) -> Vec<ContentBlock> {
        let Media { kind, mime, bytes, room: _, note } = self;
        let data = STANDARD.encode(&bytes);
        let block = match kind {
            Kind::Image => ContentBlock::image(data, mime),
            Kind::Audio => ContentBlock::audio(data, mime),
            Kind::Resource(uri) => {
                ContentBlock::resource(ResourceContents::blob(data, uri).with_mime_type(mime))
            }
        };
        let note = note.map(|note| ContentBlock::text(format!("[{note}]")));
        std::iter::once(block).chain(note).collect()
    }

    /// The number of bytes that a file of this size and the answer with it need in memory.
    pub(crate) fn weight_of(size: u64) -> usize {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        (size.div_ceil(3).saturating_mul(4)).saturating_add(size)
    }

    pub(crate) fn weight(&self) -> usize {
        Media::weight_of(self.bytes.len() as u64)
    }

    /// Writes the same content as [`into_blocks`](Media::into_blocks), directly as JSON.
    pub(crate) fn write(self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let (before, after) = match &self.kind {
            Kind::Image => flat("image", self.mime),
            Kind::Audio => flat("audio", self.mime),
            Kind::Resource(uri) => {
                let uri = serde_json::to_string(uri)?;
                let mime = self.mime;
                let before = format!(
                    r#"{{"type":"resource","resource":{{"uri":{uri},"mimeType":"{mime}","blob":""#
                );
                (before, r#""}}"#.to_owned())
            }
        };
        let (begin, end) = (r#"{"content":["#, "]}");
        let note = match &self.note {
            Some(note) => {
                let text = serde_json::to_string(&format!("[{note}]"))?;
                format!(r#",{{"type":"text","text":{text}}}"#)
            }
            None => String::new(),
        };
        let length = self.bytes.len().div_ceil(3) * 4;
        let around = before.len() + after.len() + begin.len() + note.len() + end.len();
        out.reserve_exact(around + length + 1);
        out.extend_from_slice(begin.as_bytes());
        out.extend_from_slice(before.as_bytes());
        let data = out.len();
        out.resize(data + length, 0);
        // This cannot fail, because the buffer has exactly the needed length.
        let _ = STANDARD.encode_slice(&self.bytes, &mut out[data..]);
        out.extend_from_slice(after.as_bytes());
        out.extend_from_slice(note.as_bytes());
        out.extend_from_slice(end.as_bytes());
        Ok(())
    }
}

/// The JSON before and after the bytes of a picture or sound.
fn flat(kind: &str, mime: &str) -> (String, String) {
    (format!(r#"{{"type":"{kind}","data":""#), format!(r#"","mimeType":"{mime}"}}"#))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn written_by_hand_it_says_the_same() {
        for kind in
            [|| Kind::Image, || Kind::Audio, || Kind::Resource("workspace:///a%20b".to_owned())]
        {
            for length in [0, 1, 2, 3, 100] {
                let media = || Media {
                    kind: kind(),
                    mime: "x/y",
                    bytes: vec![7; length].into(),
                    room: None,
                    note: (length > 1).then(|| "a \"note\"".to_owned()),
                };
                let mut by_hand = Vec::new();
                media().write(&mut by_hand).unwrap();
                let by_hand: Value = serde_json::from_slice(&by_hand).unwrap();
                let expect = json!({ "content": media().into_blocks() });
                assert_eq!(by_hand, expect);
            }
        }
    }
}
