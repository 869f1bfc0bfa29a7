//! `read_media_file`: returns the bytes of a file in base64.

use ab_core::options::ReadOptions;
use ab_core::{Backend, Verb};

use super::Outcome;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::bounds::MEDIA_BYTES;
use crate::files_read_tracker::LedgerView;
use crate::media::{Kind, Media};
use crate::outgoing::Outgoing;

pub(crate) async fn call(
    backend: &Backend,
    mut arguments: Arguments,
    outgoing: &Outgoing,
    ledger: Option<&LedgerView>,
) -> Outcome {
    let path = arguments.text("path")?;
    // Older callers pass this argument. It has no effect, because a file that is neither a picture
    // nor a sound is always returned as a resource.
    arguments.flag("force", false)?;
    // Reserve memory before the file is read.
    let size = backend.stat(&path).await.map_err(|error| error.with_verb(Verb::Read))?.size;
    let room = outgoing.hold(Media::weight_of(size.min(MEDIA_BYTES))).await?;
    let options = ReadOptions { max_bytes: MEDIA_BYTES, ..ReadOptions::default() };
    let content = backend.read_with(&path, options).await?;
    if let Some(ledger) = ledger {
        ledger.remember_text(backend, &path, content.stat.version);
    }
    let mime = mime_type(&path);
    let kind = match mime.split('/').next() {
        Some("image") => Kind::Image,
        Some("audio") => Kind::Audio,
        _ => Kind::Resource(uri(backend.parse_path(&path)?.as_str())),
    };
    Ok(ToolAnswer::media(Media { kind, mime, bytes: content.bytes, room, note: None }))
}

/// The MIME type of a file, according to its extension.
pub(crate) fn mime_type(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "ico" => "image/x-icon",
        "bmp" => "image/bmp",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "ogg" => "audio/ogg",
        "m4a" => "audio/mp4",
        "flac" => "audio/flac",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "avi" => "video/x-msvideo",
        "mov" => "video/quicktime",
        "pdf" => "application/pdf",
        "json" => "application/json",
        "xml" => "application/xml",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        _ => "application/octet-stream",
    }
}

/// A path of the workspace as a URI that contains nothing about the host.
fn uri(path: &str) -> String {
    let mut out = "workspace:///".to_owned();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_from_extensions() {
        for (path, expect) in [
            ("a/b.PNG", "image/png"),
            ("a.b/c", "application/octet-stream"),
            ("song.flac", "audio/flac"),
            (".gz", "application/gzip"),
        ] {
            assert_eq!(mime_type(path), expect, "{path}");
        }
    }

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("a b/ä.bin"), "workspace:///a%20b/%C3%A4.bin");
    }
}
