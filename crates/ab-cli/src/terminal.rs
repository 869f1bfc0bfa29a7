//! The output streams of a command: data goes to standard output, messages to standard error.
//!
//! A closed output pipe is reported as [`Failure::ClosedPipe`], which ends the command quietly.
//! Control characters from files are not sent to a terminal.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use ab_core::Error;
use ab_core::error::{escape_unprintable, is_bidi_control};
use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::failure::Failure;
use crate::hint;
use crate::json;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default();
const OUTPUT_BUFFER: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    /// One JSON value on standard output. Errors are JSON on standard error.
    Json,
}

impl Format {
    pub(crate) fn from_flag(json: bool) -> Format {
        if json { Format::Json } else { Format::Text }
    }
}

/// The properties of an output stream: whether it is a terminal, and whether it shows colours.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    terminal: bool,
    colour: bool,
}

impl Look {
    fn of(stream: &impl IsTerminal, colour_wanted: bool) -> Look {
        let terminal = stream.is_terminal();
        Look { terminal, colour: terminal && colour_wanted }
    }
}

#[derive(Debug)]
pub(crate) struct Terminal {
    out: BufWriter<Stdout>,
    out_look: Look,
    err_look: Look,
    format: Format,
    /// Whether notes are printed.
    notes: bool,
}

impl Terminal {
    pub(crate) fn new(format: Format) -> Terminal {
        let colour = colour_wanted();
        let out = io::stdout();
        Terminal {
            out_look: Look::of(&out, colour),
            err_look: Look::of(&io::stderr(), colour),
            out: BufWriter::with_capacity(OUTPUT_BUFFER, out),
            format,
            notes: true,
        }
    }

    /// Stops printing notes. Warnings and errors are still printed.
    pub(crate) fn silence_notes(&mut self) {
        self.notes = false;
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Whether standard output is a terminal, so that a person sees it.
    pub(crate) fn is_watched(&self) -> bool {
        self.out_look.terminal
    }

    /// Whether standard error is a terminal, so that a person sees it.
    pub(crate) fn is_heard(&self) -> bool {
        self.err_look.terminal
    }

    /// Whether the terminal can overwrite a line.
    pub(crate) fn can_redraw(&self) -> bool {
        std::env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    /// Prints a line of data.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.out, "{text}").map_err(Failure::output)
    }

    /// Prints data unchanged.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(Failure::output)
    }

    /// Prints the JSON value of this command. A command prints only one.
    pub(crate) fn value(&mut self, value: &Value) -> Result<(), Failure> {
        let written = if self.out_look.terminal {
            serde_json::to_writer_pretty(&mut self.out, value)
        } else {
            serde_json::to_writer(&mut self.out, value)
        };
        written.map_err(|error| Failure::output(error.into()))?;
        self.line("")
    }

    /// Adds `style` to `text` if standard output shows colours.
    pub(crate) fn painted(&self, style: Style, text: &str) -> String {
        paint(self.out_look, style, text)
    }

    /// Prepares a name or a part of a file for standard output. On a terminal, control characters
    /// are escaped.
    pub(crate) fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.out_look.terminal { without_controls(text) } else { Cow::Borrowed(text) }
    }

    /// Prints a note on standard error.
    pub(crate) fn note(&mut self, text: &str) {
        if self.notes {
            self.say(NOTE, "note", text);
        }
    }

    /// Prints a warning about a part of the work that failed although the rest succeeded.
    pub(crate) fn warn(&mut self, error: &Error) {
        self.say(WARNING, "warning", &error.to_string());
    }

    /// Prints an error and its hint.
    pub(crate) fn tell(&mut self, failure: &Failure) {
        let Some(error) = failure.error().map(hint::added) else { return };
        match self.format {
            Format::Json => {
                let value = serde_json::json!({ "error": json::error(&error) });
                talk(&format!("{value}\n"));
            }
            Format::Text => {
                self.say(ERROR, "error", &error.to_string());
                if let Some(hint) = error.hint() {
                    self.say(NOTE, "hint", hint);
                }
            }
        }
    }

    /// Flushes the buffered output.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::output)
    }

    fn say(&mut self, style: Style, label: &str, text: &str) {
        // Flush, so that messages keep their order if both streams lead to the same place. If this
        // fails, the next write to standard output reports the error.
        let _ = self.out.flush();
        let label = paint(self.err_look, style, label);
        let text =
            if self.err_look.terminal { without_controls(text) } else { Cow::Borrowed(text) };
        talk(&format!("{label}: {text}\n"));
    }
}

/// Writes to standard error. An error is ignored, because there is no other stream to report it on.
pub(crate) fn talk(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn colour_wanted() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !set("NO_COLOR") && !dumb
}

fn paint(look: Look, style: Style, text: &str) -> String {
    if look.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// Escapes the control characters and bidirectional controls in `text`, except tabs and line ends.
pub(crate) fn without_controls(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| !(c.is_control() || is_bidi_control(c)) || c == '\t' || c == '\n';
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for piece in text.split_inclusive(['\t', '\n']) {
        let end = piece.trim_end_matches(['\t', '\n']).len();
        shown.push_str(&escape_unprintable(&piece[..end]));
        shown.push_str(&piece[end..]);
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        for (text, shown) in [
            ("plain", "plain"),
            ("tab\tand\nline", "tab\tand\nline"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("bell\u{7}", "bell\\u{7}"),
            ("back\rforth", "back\\rforth"),
            ("grün", "grün"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
            ("\t\n\u{7}\n\n\tü\r\n", "\t\n\\u{7}\n\n\tü\\r\n"),
        ] {
            assert_eq!(without_controls(text), shown);
        }
    }

    #[test]
    fn colours_need_a_terminal() {
        let dull = Look::default();
        let bright = Look { terminal: true, colour: true };
        assert_eq!(paint(dull, ERROR, "x"), "x");
        let painted = paint(bright, ERROR, "x");
        assert!(painted.starts_with('\u{1b}') && painted.ends_with("\u{1b}[0m"), "{painted:?}");
    }
}
