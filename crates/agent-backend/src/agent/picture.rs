//! Checks whether a model API accepts a picture, by its bytes and not by the name of the file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The limits of an API on one picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct PictureLimits {
    /// Maximum length in bytes, encoded in base64.
    pub(super) base64_bytes: usize,
    /// Maximum width and height in pixels.
    pub(super) side: u32,
}

/// The MIME type of a picture that a model can see: PNG, JPEG, GIF or WebP within `limits`.
///
/// # Errors
///
/// Returns the reason why the picture cannot be shown, as a text for a model.
pub(super) fn visible_type(base64: &str, limits: PictureLimits) -> Result<&'static str, String> {
    let PictureLimits { base64_bytes, side } = limits;
    if base64.len() > base64_bytes {
        return Err(format!("pictures may have at most {} bytes", base64_bytes / 4 * 3));
    }
    let bytes = STANDARD.decode(base64).map_err(|_| "its data is not base64".to_owned())?;
    let Some(Header { mime, size }) = Header::of(&bytes) else {
        return Err("only PNG, JPEG, GIF and WebP can be shown".to_owned());
    };
    match size {
        None | Some((0, _) | (_, 0)) => Err(format!("it is not a complete {mime}")),
        Some((width, height)) if width > side || height > side => Err(format!(
            "it has {width} x {height} pixels, and at most {side} in each direction can be shown"
        )),
        Some(_) => Ok(mime),
    }
}

/// The type of a picture, and its width and height if the data is complete.
struct Header {
    mime: &'static str,
    size: Option<(u32, u32)>,
}

/// Reads the width and height of a picture of one type. Returns `None` if the data is not complete.
type ReadSize = fn(&[u8]) -> Option<(u32, u32)>;

impl Header {
    fn of(bytes: &[u8]) -> Option<Header> {
        let (mime, size): (_, ReadSize) = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            ("image/png", png)
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            ("image/jpeg", jpeg)
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            ("image/gif", gif)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            ("image/webp", webp)
        } else {
            return None;
        };
        Some(Header { mime, size: size(bytes) })
    }
}

/// A number of `length` bytes at `at`, the most significant byte first.
fn big_endian(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let digits = bytes.get(at..at + length)?;
    Some(digits.iter().fold(0, |number, digit| number << 8 | u32::from(*digit)))
}

/// A number of `length` bytes at `at`, the least significant byte first.
fn little_endian(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let digits = bytes.get(at..at + length)?;
    Some(digits.iter().rev().fold(0, |number, digit| number << 8 | u32::from(*digit)))
}

fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    // In a complete PNG the first chunk is the header and the last one has the type IEND.
    let has_header = bytes.get(12..16) == Some(b"IHDR");
    let has_end = bytes.windows(4).any(|word| word == b"IEND");
    let size = (big_endian(bytes, 16, 4)?, big_endian(bytes, 20, 4)?);
    (has_header && has_end).then_some(size)
}

fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    const TRAILER: u8 = 0x3b;
    let size = (little_endian(bytes, 6, 2)?, little_endian(bytes, 8, 2)?);
    bytes.get(10..)?.contains(&TRAILER).then_some(size)
}

/// In a JPEG the size is in a frame segment, which comes after segments of other kinds.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            // Padding between segments.
            0xff => at += 1,
            // Segments without a length.
            0x01 | 0xd0..=0xd8 => at += 2,
            // The picture data begins before a frame was found, or the picture ends.
            0xd9 | 0xda => return None,
            // Frame segments. The three exceptions in this range contain tables.
            kind @ 0xc0..=0xcf if !matches!(kind, 0xc4 | 0xc8 | 0xcc) => {
                let size = (big_endian(bytes, at + 7, 2)?, big_endian(bytes, at + 5, 2)?);
                let has_end = bytes.get(at..)?.windows(2).any(|pair| pair == [0xff, 0xd9]);
                return has_end.then_some(size);
            }
            _ => at += 2 + usize::try_from(big_endian(bytes, at + 2, 2)?).ok()?,
        }
    }
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    let announced = usize::try_from(little_endian(bytes, 4, 4)?).ok()?;
    if bytes.len() < announced.checked_add(8)? {
        return None;
    }
    match bytes.get(12..16)? {
        b"VP8 " => {
            let side = |at| Some(little_endian(bytes, at, 2)? & 0x3fff);
            Some((side(26)?, side(28)?))
        }
        b"VP8L" => {
            let packed = little_endian(bytes, 21, 4)?;
            Some(((packed & 0x3fff) + 1, (packed >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((little_endian(bytes, 24, 3)? + 1, little_endian(bytes, 27, 3)? + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PictureLimits = PictureLimits { base64_bytes: 1000, side: 2000 };

    fn png_of(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.extend(b"\x08\x06\0\0\0....\0\0\0\0IEND");
        bytes
    }

    fn webp_of(chunk: &[u8]) -> Vec<u8> {
        let length = u32::try_from(chunk.len() + 4).unwrap();
        [&b"RIFF"[..], &length.to_le_bytes(), b"WEBP", chunk].concat()
    }

    #[track_caller]
    fn check(bytes: &[u8], expect: Result<&str, &str>) {
        let found = visible_type(&STANDARD.encode(bytes), LIMITS);
        match (found, expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(found), Err(expect)) => assert!(found.contains(expect), "{found}"),
            (found, expect) => panic!("{found:?}, not {expect:?}"),
        }
    }

    #[test]
    fn the_bytes_decide_what_a_model_can_see() {
        check(&png_of(3, 2000), Ok("image/png"));
        check(&png_of(3, 2001), Err("3 x 2001 pixels"));
        check(&png_of(0, 1), Err("not a complete image/png"));
        check(&png_of(3, 4)[..30], Err("not a complete image/png"));
        check(b"GIF89a\x02\0\x03\0...\x3b", Ok("image/gif"));
        check(b"GIF89a\x02\0\x03", Err("not a complete image/gif"));
        let frame =
            b"\xff\xd8\xff\xe0\0\x04..\xff\xff\xc4\0\x03.\xff\xc2\0\x0b\x08\0\x10\0\x20...\xff\xd9";
        check(frame, Ok("image/jpeg"));
        check(&frame[..frame.len() - 1], Err("not a complete image/jpeg"));
        check(b"\xff\xd8\xff\xd9", Err("not a complete image/jpeg"));
        check(&webp_of(b"VP8 ....\0\0\0\x9d\x01\x2a\x10\0\x10\0"), Ok("image/webp"));
        check(&webp_of(b"VP8L....\x2f\x0f\xc0\x03\0"), Ok("image/webp"));
        check(&webp_of(b"VP8X....\0\0\0\0\xd0\x07\0\0\0\0"), Err("2001 x 1 pixels"));
        check(&webp_of(b"VP8 ")[..15], Err("not a complete image/webp"));
        check(b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>", Err("only PNG"));
        check(b"BM....", Err("only PNG"));
        check(b"", Err("only PNG"));
        check(&[0; 1000], Err("at most 750 bytes"));
        assert!(visible_type("no base64!", LIMITS).unwrap_err().contains("not base64"));
    }
}
