//! Classifies JSON-RPC messages without changing them.
//!
//! Only the members `id` and `method` are parsed. The rest must be valid JSON but is not parsed
//! further, so that the bytes can be forwarded unchanged.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

/// The largest number up to which floating-point numbers represent every integer exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The id of a request. Ids are compared as JSON values. Different spellings of one value are the
/// same id. `1` and `"1"` are different ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RpcId {
    Null,
    Number(String),
    Text(String),
}

impl fmt::Display for RpcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RpcId::Null => f.write_str("null"),
            RpcId::Number(text) => f.write_str(text),
            RpcId::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl RpcId {
    /// The id as JSON text.
    pub fn to_json(&self) -> String {
        match self {
            RpcId::Null => "null".to_owned(),
            RpcId::Number(text) => text.clone(),
            RpcId::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        }
    }
}

/// The kind of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcMessageKind {
    Request(RpcId),
    Notification,
    Response(RpcId),
    /// An object with neither `method` nor `id`.
    Other,
}

/// The error for bytes that are not a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRpcMessage(String);

impl fmt::Display for InvalidRpcMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RpcMessageKind {
    /// Classifies a message.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not one JSON object in UTF-8, or if `id` or `method` occurs twice or
    /// has the wrong type.
    pub fn parse(bytes: &[u8]) -> Result<RpcMessageKind, InvalidRpcMessage> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| InvalidRpcMessage(format!("not valid UTF-8: {error}")))?;
        serde_json::from_str(text).map_err(|error| InvalidRpcMessage(error.to_string()))
    }
}

/// Returns the message as one line. Line breaks are replaced by spaces. This does not change the
/// message, because in JSON line breaks occur only as whitespace between tokens.
pub fn replace_line_breaks_by_spaces(bytes: &[u8]) -> Cow<'_, [u8]> {
    let breaks = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !bytes.iter().any(breaks) {
        return Cow::Borrowed(bytes);
    }
    Cow::Owned(bytes.iter().map(|byte| if breaks(byte) { b' ' } else { *byte }).collect())
}

impl<'de> Deserialize<'de> for RpcMessageKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = RpcMessageKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<RpcMessageKind, A::Error> {
        use serde::de::Error;
        let (mut id, mut method) = (None, false);
        while let Some(name) = members.next_key::<Name>()? {
            match name {
                Name::Id if id.is_some() => {
                    return Err(Error::custom("the member id occurs twice"));
                }
                Name::Id => id = Some(members.next_value::<RpcId>()?),
                Name::Method if method => {
                    return Err(Error::custom("the member method occurs twice"));
                }
                Name::Method => {
                    members.next_value::<MethodName>()?;
                    method = true;
                }
                Name::Other => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(match (method, id) {
            (true, Some(id)) => RpcMessageKind::Request(id),
            (true, None) => RpcMessageKind::Notification,
            (false, Some(id)) => RpcMessageKind::Response(id),
            (false, None) => RpcMessageKind::Other,
        })
    }
}

/// A member of a message. Only the names `id` and `method` matter here.
enum Name {
    Id,
    Method,
    Other,
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a member")
            }

            fn visit_str<E>(self, text: &str) -> Result<Name, E> {
                Ok(match text {
                    "id" => Name::Id,
                    "method" => Name::Method,
                    _ => Name::Other,
                })
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Parses the value of `method`. Accepts any string and drops it.
struct MethodName;

impl<'de> Deserialize<'de> for MethodName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = MethodName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string as method")
            }

            fn visit_str<E>(self, _: &str) -> Result<MethodName, E> {
                Ok(MethodName)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl<'de> Deserialize<'de> for RpcId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Id;
        impl Visitor<'_> for Id {
            type Value = RpcId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or null as id")
            }

            fn visit_str<E>(self, text: &str) -> Result<RpcId, E> {
                Ok(RpcId::Text(text.to_owned()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<RpcId, E> {
                Ok(RpcId::Number(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<RpcId, E> {
                Ok(RpcId::Number(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<RpcId, E> {
                // Normalize whole numbers: an agent that uses floating-point numbers answers the id
                // 1 with 1.0.
                let whole = number.fract() == 0.0 && number.abs() <= MAX_EXACT;
                let text = if whole { format!("{number:.0}") } else { number.to_string() };
                Ok(RpcId::Number(if text == "-0" { "0".to_owned() } else { text }))
            }

            fn visit_unit<E>(self) -> Result<RpcId, E> {
                Ok(RpcId::Null)
            }
        }
        deserializer.deserialize_any(Id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> RpcId {
        RpcId::Number(text.to_owned())
    }

    fn text(text: &str) -> RpcId {
        RpcId::Text(text.to_owned())
    }

    #[test]
    fn every_kind_of_message_is_found() {
        for (json, expect) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, RpcMessageKind::Request(number("1"))),
            (r#"{"id":"1","method":"m","params":{"id":9}}"#, RpcMessageKind::Request(text("1"))),
            (r#"{"id":null,"method":"m"}"#, RpcMessageKind::Request(RpcId::Null)),
            (r#" {"method":"_sandboxagent/x"} "#, RpcMessageKind::Notification),
            (r#"{"id":2,"result":{"method":"no"}}"#, RpcMessageKind::Response(number("2"))),
            (r#"{"\u0069d":3,"m\u0065thod":"m"}"#, RpcMessageKind::Request(number("3"))),
            ("{}", RpcMessageKind::Other),
            (r#"{"params":[{"id":1}]}"#, RpcMessageKind::Other),
        ] {
            assert_eq!(RpcMessageKind::parse(json.as_bytes()), Ok(expect), "{json}");
        }
    }

    #[test]
    fn ids_are_compared_as_json_values() {
        let id = |json: &str| match RpcMessageKind::parse(format!("{{\"id\":{json}}}").as_bytes()) {
            Ok(RpcMessageKind::Response(id)) => id,
            other => panic!("{json}: {other:?}"),
        };
        for (one, other) in
            [("1", "1.0"), ("100", "1e2"), ("\"ab\"", "\"a\\u0062\""), ("0", "-0.0")]
        {
            assert_eq!(id(one), id(other), "{one} {other}");
        }
        assert_eq!(id("123456789012345678901"), id("123456789012345680000"));
        assert_ne!(id("1"), id("\"1\""));
        assert_ne!(id("1"), id("1.5"));
        assert_eq!(id("18446744073709551615"), number("18446744073709551615"));
    }

    #[test]
    fn other_bytes_are_no_message() {
        for (json, says) in [
            ("", "EOF"),
            ("nonsense", "expected"),
            ("[]", "a JSON-RPC object"),
            ("7", "a JSON-RPC object"),
            ("\"text\"", "a JSON-RPC object"),
            ("{\"id\":1,\"method\":\"m\"} {}", "trailing"),
            ("{\"id\":1,\"id\":2,\"method\":\"m\"}", "id occurs twice"),
            ("{\"id\":1,\"method\":\"m\",\"method\":\"n\"}", "method occurs twice"),
            ("{\"id\":{},\"method\":\"m\"}", "as id"),
            ("{\"id\":true,\"method\":\"m\"}", "as id"),
            ("{\"method\":7}", "as method"),
            ("{\"params\":{\"a\":}}", "expected value"),
            ("{\"params\":\"a\nb\"}", "control character"),
        ] {
            let error = RpcMessageKind::parse(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{json}: {error}");
        }
        let error = RpcMessageKind::parse(b"{\"params\":\"\xff\"}").unwrap_err().to_string();
        assert!(error.contains("UTF-8"), "{error}");
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let depth = 200_000;
        let json = format!("{{\"params\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(RpcMessageKind::parse(json.as_bytes()), Ok(RpcMessageKind::Other));
    }

    #[test]
    fn line_breaks_between_tokens_become_spaces() {
        let pretty = b"{\r\n  \"method\": \"a\\nb\"\n}";
        assert_eq!(&*replace_line_breaks_by_spaces(pretty), b"{    \"method\": \"a\\nb\" }");
        assert!(matches!(replace_line_breaks_by_spaces(b"{}"), Cow::Borrowed(_)));
    }
}
