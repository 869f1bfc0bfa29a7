//! How we differ from the official server on purpose, and why. Each makes two outcomes even that
//! differ in this and in nothing else; where they do not, it leaves them as they are.

use serde_json::{Value, json};

use super::Outcome;

pub(super) struct Difference {
    /// Told when it is no longer there.
    pub(super) why: &'static str,
    pub(super) even: fn(&mut Outcome, &mut Outcome),
}

pub(super) const ERROR_TEXT: Difference = Difference {
    why: "an error names the path as its caller does, says what to do next, and nothing of the host",
    even: both_failed,
};

pub(super) const UNKNOWN_TOOL: Difference = Difference {
    why: "an unknown tool is an error of the protocol, as its specification has it, not a result",
    even: both_failed,
};

pub(super) const ERROR_INSIDE: Difference = Difference {
    why: "the error of one file among several is told as it is alone",
    even: |ours, theirs| {
        for side in [ours, theirs] {
            change_texts(side, |text| match text.split_once("Error - ") {
                Some((before, _)) => format!("{before}Error"),
                None => text.to_owned(),
            });
        }
    },
};

pub(super) const WORKSPACE_PATHS: Difference = Difference {
    why: "paths in answers count from the root of the workspace, and are what the tools take",
    even: |_, theirs| change_texts(theirs, |text| text.replace("{root}/", "")),
};

pub(super) const WHOLE_LINES: Difference = Difference {
    why: "head and tail give whole lines with their ends; what follows the last end is no line",
    even: |ours, theirs| {
        let (given, part) = (text_of(ours), text_of(theirs));
        if given.starts_with(&part) || given.ends_with(&part) {
            change_texts(theirs, |_| given.clone());
        }
    },
};

pub(super) const MORE_FIELDS: Difference = Difference {
    why: "programs are told more than the text: which lines there were, how many were replaced",
    even: |ours, theirs| {
        if let (Some(ours), Some(theirs)) = (ours.value.as_object_mut(), theirs.value.as_object()) {
            ours.retain(|field, _| theirs.contains_key(field));
        }
    },
};

/// Of every answer that is about a path.
pub(super) const USED_PATHS: Difference = Difference {
    why: "programs are told the path that was used, and where commands find it",
    even: |ours, _| {
        if let Some(fields) = ours.value.as_object_mut() {
            let named = ["path", "commandPath", "source", "destination"];
            fields.retain(|field, _| !named.contains(&field.as_str()));
        }
    },
};

pub(super) const TAKEN_FROM_ROOT: Difference = Difference {
    why: "an absolute path outside is taken from the root, as the daemon of seed 0 does, and so is ~; \
          the answer says so",
    even: |ours, theirs| {
        if text_of(ours).starts_with("Successfully wrote to s") && ours.value.get("note").is_some()
        {
            refused_by_them(ours, theirs);
        }
    },
};

pub(super) const BYTES_ONCE: Difference = Difference {
    why: "the bytes of a file are sent once, as content, and not again as a value",
    even: |ours, theirs| {
        if ours.value.is_null() {
            theirs.value = Value::Null;
        }
    },
};

pub(super) const IGNORED: Difference = Difference {
    why: "what .gitignore names, build output and caches are left out of a search unless asked for, and \
          the answer counts them",
    even: |ours, theirs| {
        let note = ours.value.as_object_mut().and_then(|fields| fields.remove("note"));
        let Some(note) = note.as_ref().and_then(Value::as_str) else { return };
        let note = format!("\n[{note}]");
        change_texts(ours, |text| text.replace(&note, ""));
        change_texts(theirs, |text| {
            let lines = text.split('\n').filter(|line| !line.contains("node_modules"));
            match lines.collect::<Vec<_>>().join("\n") {
                none if none.is_empty() => "No matches found".to_owned(),
                lines => lines,
            }
        });
    },
};

pub(super) const NOTE: Difference = Difference {
    why: "a text that is not all there is ends with a note that says so",
    even: |ours, _| {
        let note = ours.value.as_object_mut().and_then(|fields| fields.remove("note"));
        if let Some(note) = note.as_ref().and_then(Value::as_str) {
            let note = format!("[{note}]");
            change_texts(ours, |text| text.replace(&note, ""));
        }
    },
};

pub(super) const BOUNDED: Difference = Difference {
    why: "a result has a bound, since callers drop what is too long",
    even: |ours, theirs| {
        let (given, all) = (text_of(ours), text_of(theirs));
        if given.len() < all.len()
            && ours.value.get("note").is_some()
            && all[..1000] == given[..1000]
        {
            same(ours, theirs);
        }
    },
};

pub(super) const BINARY: Difference = Difference {
    why: "a binary file is refused by name and size; read as text it would be garbage",
    even: refused_by_us,
};

pub(super) const ZERO_LINES: Difference = Difference {
    why: "no lines at all is a mistake of the caller, and not a wish for all of them",
    even: refused_by_us,
};

pub(super) const UNKNOWN_ARGUMENT: Difference = Difference {
    why: "an argument that a tool does not know is refused: a misspelt dryRun would write",
    even: refused_by_us,
};

pub(super) const AMBIGUOUS: Difference = Difference {
    why: "text that is there twice is not replaced at the first place that comes",
    even: refused_by_us,
};

pub(super) const EXACT: Difference = Difference {
    why: "text is replaced where it is exactly; the error says how the nearest differs",
    even: refused_by_us,
};

pub(super) const NOTHING_TO_DO: Difference = Difference {
    why: "an edit of nothing, or of an empty text, is a mistake of the caller",
    even: refused_by_us,
};

pub(super) const PARENTS: Difference = Difference {
    why: "directories on the way to a file are made, as the daemon of seed 0 does",
    even: refused_by_them,
};

pub(super) const NULL: Difference = Difference {
    why: "null for an argument that may be left out is the same as leaving it out",
    even: refused_by_them,
};

pub(super) const RESOURCE_URI: Difference = Difference {
    why: "the URI of a resource says where it is in the workspace, and nothing of the host",
    even: |_, theirs| change_texts(theirs, |text| text.replace("file://{root}/", "workspace:///")),
};

pub(super) const MIME_TYPE: Difference = Difference {
    why: "more types are known by their extensions",
    even: |ours, theirs| {
        let at = "/0/resource/mimeType";
        let known = ours.content.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        change_texts(theirs, |text| match text {
            "application/octet-stream" => known.clone(),
            text => text.to_owned(),
        });
    },
};

pub(super) const DIFF_HEAD: Difference = Difference {
    why: "a diff begins with its two file lines, as patch takes it, and the paths of the workspace",
    even: |_, theirs| {
        change_texts(theirs, |text| {
            let kept = |line: &&str| !line.starts_with("Index: ") && !line.starts_with("======");
            let lines: Vec<&str> = text.split('\n').filter(kept).collect();
            lines.join("\n").replace("\toriginal\n", "\n").replace("\tmodified\n", "\n")
        });
    },
};

pub(super) const DIFF_SUMMARY: Difference = Difference {
    why: "a diff is followed by what was done, so that a dry run cannot be taken for an edit",
    even: |ours, _| {
        change_texts(ours, |text| match text.rsplit_once("`\n\n") {
            Some((diff, summary)) if summary.contains(" replaced; ") => format!("{diff}`\n\n"),
            _ => text.to_owned(),
        });
    },
};

pub(super) const LINE_ENDS: Difference = Difference {
    why: "a file keeps its line ends",
    even: |ours, theirs| {
        change_texts(ours, |text| text.replace("\r\n", "\n"));
        for (path, told) in &ours.files {
            let content = |told: &str| told.splitn(3, ' ').nth(2).map(str::to_owned);
            let changed = theirs.files.get(path).and_then(|told| content(told));
            if changed.is_some() && content(&told.replace("\\r\\n", "\\n")) == changed {
                theirs.files.insert(path.clone(), told.clone());
            }
        }
    },
};

pub(super) const LINK_MOVED: Difference = Difference {
    why: "a link is moved, and not the file it leads to, which would leave the link to nothing",
    even: |ours, theirs| {
        let is_link = |files: &super::Files, path: &str| {
            files.get(path).is_some_and(|told| told.starts_with("link to "))
        };
        if is_link(&ours.files, "moved-link") && is_link(&theirs.files, "to-readme") {
            theirs.files = ours.files.clone();
        }
    },
};

pub(super) const LINK_KIND: Difference = Difference {
    why: "a link is called one in a tree, since what it leads to is not shown",
    even: |ours, _| {
        change_texts(ours, |text| text.replace(r#""type": "symlink""#, r#""type": "file""#));
    },
};

pub(super) const DEFAULT_EXCLUDES: Difference = Difference {
    why: "build output and caches are left out of a tree unless asked for",
    even: |_, theirs| leave_out(theirs, "node_modules"),
};

pub(super) const NAME_ANYWHERE: Difference = Difference {
    why: "a glob without a slash means a name at any depth",
    even: |ours, theirs| match text_of(theirs).as_str() {
        "No matches found" if !ours.failed => same(ours, theirs),
        _ => leave_out(theirs, "blob.bin"),
    },
};

pub(super) const LINKS_FOUND: Difference = Difference {
    why: "a link is found by its name wherever it leads; only going through it is refused",
    even: |ours, _| {
        change_texts(ours, |text| text.replace("to-nowhere\nto-outside\n", ""));
    },
};

pub(super) const LINK_SIZE: Difference = Difference {
    why: "the size of a link is its own: looking at what it leads to could lead outside",
    even: |ours, theirs| {
        for side in [ours, theirs] {
            change_texts(side, |text| {
                let kept = |line: &&str| !line.contains(" to-") && !line.starts_with("Combined");
                text.split('\n').filter(kept).collect::<Vec<_>>().join("\n")
            });
        }
    },
};

pub(super) const NAME_ORDER: Difference = Difference {
    why: "names are in the order of their bytes everywhere, whatever the language of the host",
    even: |ours, theirs| {
        for side in [ours, theirs] {
            change_texts(side, |text| {
                let mut lines: Vec<&str> = text.split('\n').collect();
                lines.sort_unstable();
                lines.join("\n")
            });
        }
    },
};

pub(super) const TIMES: Difference = Difference {
    why: "times are written in ISO 8601, in UTC",
    even: |ours, theirs| {
        for side in [ours, theirs] {
            drop_lines(side, &["created: ", "modified: ", "accessed: "]);
        }
    },
};

pub(super) const MORE_INFO: Difference = Difference {
    why: "the kind, the version and the path of a file are told as well",
    even: |ours, _| drop_lines(ours, &["type: ", "version: ", "path: "]),
};

pub(super) const DIRECTORY_SIZE: Difference = Difference {
    why: "a directory has no size; that of its entry on disk is the file system's affair",
    even: |ours, theirs| {
        if text_of(ours).starts_with("size: 0\n") {
            drop_lines(ours, &["size: "]);
            drop_lines(theirs, &["size: "]);
        }
    },
};

fn both_failed(ours: &mut Outcome, theirs: &mut Outcome) {
    if ours.failed && theirs.failed {
        (ours.content, theirs.content) = (Value::Null, Value::Null);
    }
}

fn refused_by_us(ours: &mut Outcome, theirs: &mut Outcome) {
    if ours.failed && !theirs.failed {
        *theirs = ours.clone();
    }
}

fn refused_by_them(ours: &mut Outcome, theirs: &mut Outcome) {
    if !ours.failed && theirs.failed {
        *theirs = ours.clone();
    }
}

fn same(ours: &Outcome, theirs: &mut Outcome) {
    theirs.content = ours.content.clone();
    theirs.value = ours.value.clone();
}

/// What a program gets as the text.
fn text_of(outcome: &Outcome) -> String {
    outcome.value["content"].as_str().unwrap_or_default().to_owned()
}

/// Changes every text of an answer, wherever it stands.
fn change_texts(outcome: &mut Outcome, change: impl Fn(&str) -> String) {
    fn walk(value: &mut Value, change: &impl Fn(&str) -> String) {
        match value {
            Value::String(text) => *text = change(text),
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, change)),
            Value::Object(fields) => {
                // The kind of a block is no text.
                let fields = fields.iter_mut().filter(|(name, _)| *name != "type");
                fields.for_each(|(_, value)| walk(value, change));
            }
            _ => {}
        }
    }
    walk(&mut outcome.content, &change);
    walk(&mut outcome.value, &change);
}

fn drop_lines(outcome: &mut Outcome, beginnings: &[&str]) {
    change_texts(outcome, |text| {
        let kept = |line: &&str| !beginnings.iter().any(|beginning| line.starts_with(beginning));
        text.split('\n').filter(kept).collect::<Vec<_>>().join("\n")
    });
}

/// Takes what has a name out of a tree.
fn leave_out(outcome: &mut Outcome, name: &str) {
    fn prune(nodes: &mut Value, name: &str) {
        let Some(nodes) = nodes.as_array_mut() else { return };
        nodes.retain(|node| node["name"] != name);
        for node in nodes {
            prune(node.get_mut("children").unwrap_or(&mut json!(null)), name);
        }
    }
    change_texts(outcome, |text| match serde_json::from_str::<Value>(text) {
        Ok(mut nodes) => {
            prune(&mut nodes, name);
            format!("{nodes:#}")
        }
        Err(_) => text.to_owned(),
    });
}
