//! The agent of both servers: it answers every request at once, and on request sends a burst of notifications.

use std::io::{BufRead, BufWriter, Write};

/// Makes this program the agent.
pub(crate) const ECHO: &str = "AB_BENCH_ECHO";
/// The method that asks for the burst.
pub(crate) const BURST: &str = "bench/burst";
/// The method of its notifications, their number, and the bytes of each.
pub(crate) const EVENT: &str = "bench/event";
pub(crate) const EVENTS: usize = 20_000;
const PADDING: usize = 1000;

pub(crate) fn run() {
    let mut input = std::io::stdin().lock();
    let mut output = BufWriter::new(std::io::stdout().lock());
    let padding = "x".repeat(PADDING);
    let mut line = String::new();
    while input.read_line(&mut line).unwrap() > 0 {
        if let Some(id) = id(&line) {
            let events = if line.contains(BURST) { EVENTS } else { 0 };
            for number in 0..events {
                writeln!(
                    output,
                    r#"{{"jsonrpc":"2.0","method":"{EVENT}","params":{{"n":{number},"text":"{padding}"}}}}"#
                )
                .unwrap();
            }
            writeln!(output, r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).unwrap();
            output.flush().unwrap();
        }
        line.clear();
    }
}

/// The id of a request of this benchmark: a number.
fn id(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("\"id\":")?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    Some(&rest[..end])
}
