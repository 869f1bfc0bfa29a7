//! The bytes of a file as they are answered: in base64, once for models and once for programs.
//!
//! They may be many. Written by hand, they are encoded once, into the answer itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rmcp::model::{ContentBlock, ResourceContents};
use serde_json::{Value, json};

use crate::outgoing::Held;

#[derive(Debug)]
pub(crate) struct Media {
    pub(crate) kind: Kind,
    pub(crate) mime: &'static str,
    pub(crate) bytes: Bytes,
    /// Taken before the bytes were read.
    pub(crate) room: Option<Held>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Image,
    Audio,
    /// Neither: an embedded resource, with its URI.
    Resource(String),
}

impl Media {
    pub(crate) fn into_blocks(self) -> (Vec<ContentBlock>, Value) {
        let Media { kind, mime, bytes, room: _ } = self;
        let data = STANDARD.encode(&bytes);
        let (item, block) = match kind {
            Kind::Image => (
                json!({ "type": "image", "data": data, "mimeType": mime }),
                ContentBlock::image(data, mime),
            ),
            Kind::Audio => (
                json!({ "type": "audio", "data": data, "mimeType": mime }),
                ContentBlock::audio(data, mime),
            ),
            Kind::Resource(uri) => {
                let resource = json!({ "uri": uri, "mimeType": mime, "blob": data });
                let contents = ResourceContents::blob(data, uri).with_mime_type(mime);
                let block = ContentBlock::resource(contents);
                (json!({ "type": "resource", "resource": resource }), block)
            }
        };
        (vec![block], json!({ "content": [item] }))
    }

    /// Bytes that a file of this size has as an answer, with the file itself.
    pub(crate) fn weight_of(size: u64) -> usize {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        (size.div_ceil(3).saturating_mul(8)).saturating_add(size)
    }

    pub(crate) fn weight(&self) -> usize {
        Media::weight_of(self.bytes.len() as u64)
    }

    /// As [`into_blocks`](Media::into_blocks) says it, in JSON.
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
        let (begin, middle, end) =
            (r#"{"content":["#, r#"],"structuredContent":{"content":["#, "]}}");
        let length = self.bytes.len().div_ceil(3) * 4;
        let around = 2 * (before.len() + after.len()) + begin.len() + middle.len() + end.len();
        out.reserve_exact(around + 2 * length + 1);
        out.extend_from_slice(begin.as_bytes());
        let block = out.len();
        out.extend_from_slice(before.as_bytes());
        let data = out.len();
        out.resize(data + length, 0);
        // The room is exactly what it needs, so this cannot fail.
        let _ = STANDARD.encode_slice(&self.bytes, &mut out[data..]);
        out.extend_from_slice(after.as_bytes());
        let block = block..out.len();
        out.extend_from_slice(middle.as_bytes());
        out.extend_from_within(block);
        out.extend_from_slice(end.as_bytes());
        Ok(())
    }
}

/// What stands before and after the bytes of a picture or sound.
fn flat(kind: &str, mime: &str) -> (String, String) {
    (format!(r#"{{"type":"{kind}","data":""#), format!(r#"","mimeType":"{mime}"}}"#))
}

#[cfg(test)]
mod tests {
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
                };
                let mut by_hand = Vec::new();
                media().write(&mut by_hand).unwrap();
                let by_hand: Value = serde_json::from_slice(&by_hand).unwrap();
                let (content, structured) = media().into_blocks();
                let expect = json!({ "content": content, "structuredContent": structured });
                assert_eq!(by_hand, expect);
            }
        }
    }
}
