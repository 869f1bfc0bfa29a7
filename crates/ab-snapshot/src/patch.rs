//! Finds the files that a patch must include as binary because their lines are not UTF-8.

/// Returns git attributes that mark files as binary. They mark the files whose part of this patch
/// is not UTF-8. Returns `None` if the whole patch is UTF-8.
///
/// The patch must have quoted paths (`core.quotePath`).
pub(crate) fn binary_attributes(patch: &[u8]) -> Option<String> {
    if std::str::from_utf8(patch).is_ok() {
        return None;
    }
    let mut attributes = String::new();
    for part in parts(patch).filter(|part| std::str::from_utf8(part).is_err()) {
        // A part without a path contains no lines of the file, so it needs no attribute.
        if let Some(path) = path(part) {
            attributes.push_str(&format!("{} -diff\n", pattern(&path)));
        }
    }
    Some(attributes)
}

/// Splits the patch into its parts, one for each file.
fn parts(patch: &[u8]) -> impl Iterator<Item = &[u8]> {
    const START: &[u8] = b"\ndiff --git ";
    let starts: Vec<usize> = patch
        .windows(START.len())
        .enumerate()
        .filter(|(_, window)| *window == START)
        .map(|(at, _)| at + 1)
        .collect();
    let ends = starts.clone().into_iter().chain([patch.len()]);
    let starts = [0].into_iter().chain(starts);
    starts.zip(ends).map(|(start, end)| &patch[start..end])
}

/// Returns the path of the file of a part. This is the path of the new file, or the path of the old
/// file if there is no new file.
fn path(part: &[u8]) -> Option<Vec<u8>> {
    let line = |mark: &[u8]| {
        let mut lines = part.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(mark)).map(unquoted)
    };
    let new = line(b"+++ ").filter(|path| path != b"/dev/null");
    let path = new.or_else(|| line(b"--- "))?;
    path.get(2..).map(<[u8]>::to_vec)
}

/// Decodes a path in the form that git printed.
fn unquoted(printed: &[u8]) -> Vec<u8> {
    // Git prints a tab after a path that contains spaces.
    let printed = printed.strip_suffix(b"\t").unwrap_or(printed);
    let Some(quoted) = printed.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) else {
        return printed.to_vec();
    };
    let mut path = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            path.push(byte);
            continue;
        }
        match bytes.next() {
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for digit in bytes.by_ref().take(2) {
                    value = value * 8 + u32::from(digit.wrapping_sub(b'0') & 7);
                }
                path.push(value as u8);
            }
            Some(b'a') => path.push(7),
            Some(b'b') => path.push(8),
            Some(b't') => path.push(b'\t'),
            Some(b'n') => path.push(b'\n'),
            Some(b'v') => path.push(11),
            Some(b'f') => path.push(12),
            Some(b'r') => path.push(b'\r'),
            Some(other) => path.push(other),
            None => {}
        }
    }
    path
}

/// Returns a pattern for an attributes file. It matches only this path.
fn pattern(path: &[u8]) -> String {
    let mut pattern = String::from("\"/");
    for byte in path {
        match byte {
            b'\\' => pattern.push_str("\\\\\\\\"),
            b'*' | b'?' | b'[' => pattern.push_str(&format!("\\\\{}", char::from(*byte))),
            b'"' => pattern.push_str("\\\""),
            0x20..0x7f => pattern.push(char::from(*byte)),
            other => pattern.push_str(&format!("\\{other:03o}")),
        }
    }
    pattern.push('"');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_text_are_named() {
        let patch = b"diff --git a/plain b/plain\n--- a/plain\n+++ b/plain\n@@ -1 +1 @@\n-a\n+b\n\
            diff --git \"a/caf\\303\\251 *.txt\" \"b/caf\\303\\251 *.txt\"\n\
            --- \"a/caf\\303\\251 *.txt\"\t\n+++ \"b/caf\\303\\251 *.txt\"\t\n@@ -1 +1 @@\n-a\n+\xe9\n\
            diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-\xff\n";
        let expect = "\"/caf\\303\\251 \\\\*.txt\" -diff\n\"/gone\" -diff\n";
        assert_eq!(binary_attributes(patch).as_deref(), Some(expect));
        assert_eq!(binary_attributes("é\n".as_bytes()), None);
    }
}
