//! Whatever bytes arrive, the scanner of messages agrees with a parser, and forwards one line.

use ab_acp::gateway::{RpcMessageKind, replace_line_breaks_by_spaces};
use ab_testkit::fuzz;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::sample::select;
use serde_json::Value;

/// What messages are made of, and some things that they are not.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "1",
    "-0.0",
    "1e2",
    "1e999",
    "\"id\"",
    "\"method\"",
    "\"\\u0069d\"",
    "\"params\"",
    "\"result\"",
    "\"x\"",
    "\"\\ud800\"",
    "\u{feff}",
    " ",
    "\n",
    "\r\n",
    "{\"id\":1,\"method\":\"m\"}",
    "{\"id\":\"a\",\"result\":{}}",
    "\u{0}",
];

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(select(PIECES), 0..16).prop_map(|pieces| pieces.concat().into_bytes()),
        vec(any::<u8>(), 0..64),
        (vec(select(PIECES), 0..6), any::<u16>()).prop_map(|(pieces, cut)| {
            let inner = pieces.concat();
            let text = format!("{{\"id\":7,\"params\":[{inner}],\"method\":\"m\"}}").into_bytes();
            let length = text.len() - usize::from(cut) % 3;
            text[..length].to_vec()
        }),
    ]
}

#[test]
fn fuzz_envelope() {
    fuzz::check_property("envelope", bytes(), |bytes| {
        let scanned = RpcMessageKind::parse(&bytes);
        if let Ok(envelope) = &scanned {
            let value: Option<Value> = serde_json::from_slice(&bytes).ok();
            // The parser refuses what the scanner skips: numbers out of range and lone surrogates.
            if let Some(value) = value {
                let Some(object) = value.as_object() else {
                    return Err(proptest::test_runner::TestCaseError::fail("not an object"));
                };
                let (method, id) = (object.contains_key("method"), object.contains_key("id"));
                let agrees = match envelope {
                    RpcMessageKind::Request(_) => method && id,
                    RpcMessageKind::Notification => method && !id,
                    RpcMessageKind::Response(_) => !method && id,
                    RpcMessageKind::Other => !method && !id,
                };
                prop_assert!(agrees, "{envelope:?} {object:?}");
            }
            let line = replace_line_breaks_by_spaces(&bytes);
            prop_assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
            prop_assert_eq!(&RpcMessageKind::parse(&line), &scanned);
        }
        Ok(())
    });
}
