//! The parser of messages never panics, and what it takes it takes again.

use ab_spaces::{parse_operations_bytes, parse_operations_message};
use ab_testkit::fuzz;
use proptest::prelude::*;
use serde_json::{Value, json};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z./\\x00 -]{0,12}".prop_map(Value::from),
        prop_oneof![
            Just("createFile"),
            Just("shell"),
            Just("editFile"),
            Just("base64"),
            Just("1.0")
        ]
        .prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("type".to_owned()),
        Just("path".to_owned()),
        Just("content".to_owned()),
        Just("command".to_owned()),
        Just("edits".to_owned()),
        Just("oldContent".to_owned()),
        Just("env".to_owned()),
        Just("timeout".to_owned()),
        "[a-z~/]{1,4}",
    ];
    leaf.prop_recursive(4, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6).prop_map(Value::from_iter),
        ]
    })
}

#[test]
fn fuzz_operations() {
    let operations = prop::collection::vec(value(), 0..6);
    let bytes = prop::collection::vec(any::<u8>(), 0..256);
    fuzz::check_property("operations", (operations, bytes), |(operations, bytes)| {
        let _ = parse_operations_bytes(&bytes);
        let message = json!({ "protocolVersion": "1.0", "operations": operations });
        match parse_operations_message(&message) {
            Ok(taken) => {
                let again = parse_operations_message(&json!(taken));
                prop_assert_eq!(again.as_ref(), Ok(&taken));
            }
            Err(error) => {
                prop_assert!(!error.issues.is_empty());
                for issue in &error.issues {
                    let above = issue.pointer.rsplit_once('/').map_or("", |(above, _)| above);
                    prop_assert!(message.pointer(above).is_some(), "{}", issue.pointer);
                }
            }
        }
        Ok(())
    });
}
