//! Extractors for handlers. An invalid request becomes a [`Problem`].

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use crate::problem::{Problem, ProblemKind};

/// The bytes of a body with a JSON content type. At most axum's default of 2 MiB, unless the route
/// has another limit. `ab-api` parses the bytes, so that its errors name the field.
#[derive(Clone, Debug)]
pub(crate) struct JsonBytes(pub(crate) Bytes);

/// A parsed JSON body. The error names the invalid field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

/// The parameters of the query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryParams<T>(pub(crate) T);

/// The parameters of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathParams<T>(pub(crate) T);

impl<S: Send + Sync> FromRequest<S> for JsonBytes {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !says_json(request.headers()) {
            let detail = "the body must be JSON, with the header Content-Type: application/json";
            return Err(Problem::new(ProblemKind::UnsupportedMediaType, detail));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|error| refused(&error))?;
        Ok(JsonBytes(bytes))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let JsonBytes(bytes) = JsonBytes::from_request(request, state).await?;
        parse_json(&bytes).map(JsonBody)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        check_encoding(parts.uri.query().unwrap_or_default())?;
        let Query(params) = Query::from_request_parts(parts, state)
            .await
            .map_err(|error| invalid_query(&error.body_text()))?;
        Ok(QueryParams(params))
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(params) = Path::from_request_parts(parts, state)
            .await
            .map_err(|error| invalid_path(&error.body_text()))?;
        Ok(PathParams(params))
    }
}

/// Refuses query parameters whose names are not `known`. Otherwise a mistyped filter would be ignored,
/// and the response would have more than was asked for.
pub(crate) fn check_parameter_names(uri: &Uri, known: &[&str]) -> Result<(), Problem> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    for pair in pairs {
        let name = pair.split('=').next().unwrap_or_default();
        let name = percent_decode_str(name).decode_utf8_lossy();
        if !known.contains(&name.as_ref()) {
            let known = known.join(", ");
            return Err(invalid_query(&format!("{name}: is not one of the parameters {known}")));
        }
    }
    Ok(())
}

/// Refuses parameters that are not UTF-8. Query parsers replace invalid bytes, so two different
/// names could become equal.
fn check_encoding(query: &str) -> Result<(), Problem> {
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_text = |text| percent_decode_str(text).decode_utf8().is_ok();
        if !is_text(name) || !is_text(value) {
            let name = percent_decode_str(name).decode_utf8_lossy();
            return Err(invalid_query(&format!("{name}: must be UTF-8")));
        }
    }
    Ok(())
}

/// The problem of a parameter in the path.
fn invalid_path(said: &str) -> Problem {
    // Remove axum's own description of what failed.
    let why = said.strip_prefix("Invalid URL: ").unwrap_or(said);
    Problem::new(ProblemKind::Invalid, format!("invalid path: {why}"))
}

/// Rewrites an error message of a parser of the standard library.
fn parser_terms(said: &str) -> &str {
    match said {
        "invalid digit found in string"
        | "cannot parse integer from empty string"
        | "number too large to fit in target type"
        | "number too small to fit in target type" => "must be a whole number in the allowed range",
        "provided string was not `true` or `false`" => "must be true or false",
        said => said,
    }
}

/// The problem of a query string. It names the parameter if the parameter is known.
fn invalid_query(said: &str) -> Problem {
    // Remove axum's own description of what failed.
    let why = said.strip_prefix("Failed to deserialize query string: ").unwrap_or(said);
    let problem = |text: &str| format!("invalid query: {text}");
    let missing = why.strip_prefix("missing field `").and_then(|name| name.strip_suffix('`'));
    let named = why.split_once(": ").map(|(name, why)| (name, parser_terms(why)));
    match missing.map(|name| (name, "is required")).or(named) {
        Some((parameter, why)) if !parameter.contains(' ') => {
            let errors = BTreeMap::from([(parameter.to_owned(), vec![why.to_owned()])]);
            Problem::new(ProblemKind::Invalid, problem(&format!("{parameter}: {why}")))
                .with_errors(errors)
        }
        _ => Problem::new(ProblemKind::Invalid, problem(why)),
    }
}

/// Parses a JSON body. The error names the invalid field.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // serde would read an array as the fields of a struct, in their order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::new(ProblemKind::Invalid, "the body must be a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let (field, why) = (error.path().to_string(), error.into_inner());
        if why.is_syntax() || why.is_eof() {
            return Problem::new(ProblemKind::Invalid, format!("invalid JSON: {why}"));
        }
        let field = if field == "." { String::new() } else { field };
        let why = json_terms(&why.to_string());
        let detail = if field.is_empty() { why.clone() } else { format!("{field}: {why}") };
        let errors = BTreeMap::from([(field, vec![why])]);
        Problem::new(ProblemKind::Invalid, detail).with_errors(errors)
    })?;
    deserializer
        .end()
        .map_err(|why| Problem::new(ProblemKind::Invalid, format!("invalid JSON: {why}")))?;
    Ok(value)
}

/// Rewrites an error message of serde in terms of JSON, because it names Rust types.
pub(crate) fn json_terms(said: &str) -> String {
    const UNTAGGED: &str = "data did not match any variant of untagged enum ";
    if let Some(rest) = said.strip_prefix(UNTAGGED) {
        let place = rest.find(" at line ").map_or("", |at| &rest[at..]);
        return format!("the value has none of the accepted forms{place}");
    }
    let Some((found, rest)) = said.split_once(", expected ") else { return said.to_owned() };
    let end = rest.find(" at line ").unwrap_or(rest.len());
    let (expected, place) = rest.split_at(end);
    let first = expected.split(' ').next().unwrap_or_default();
    let expected = match first {
        "struct" | "map" | "internally" | "adjacently" => "an object",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "sequence" | "tuple" => "an array",
        "unit" => "null",
        "enum" | "variant" => "a string",
        _ => match expected {
            "a map" => "an object",
            "a sequence" => "an array",
            _ => expected,
        },
    };
    let found = match found {
        "invalid type: map" => "invalid type: object",
        "invalid type: sequence" => "invalid type: array",
        found => found,
    };
    format!("{found}, expected {expected}{place}")
}

fn says_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    let (kind, subtype) = essence.split_once('/').unwrap_or_default();
    let subtype = subtype.to_ascii_lowercase();
    kind.eq_ignore_ascii_case("application") && (subtype == "json" || subtype.ends_with("+json"))
}

fn refused(rejection: &BytesRejection) -> Problem {
    match rejection.status() {
        axum::http::StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(ProblemKind::TooLarge, "the body is larger than this route takes")
        }
        _ => Problem::new(ProblemKind::Invalid, "the body ended early or could not be read"),
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::middleware::from_fn;
    use axum::routing::post;
    use serde::Deserialize;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;
    use crate::problem::rendered;

    #[derive(Deserialize)]
    struct Repo {
        #[allow(dead_code, reason = "only its type is looked at")]
        depth: u32,
    }

    /// The response of a test router with a JSON handler, a bytes handler and two parameters.
    async fn ask(path: &str, content_type: &str, body: impl Into<Body>) -> (u16, String, Value) {
        let router: Router = Router::new()
            .route("/api/v1/orders", post(async |JsonBytes(_)| "taken"))
            .route("/api/v1/bytes", post(async |_: Bytes| "taken"))
            .route("/api/v1/number/{number}", post(async |PathParams(_): PathParams<u32>| "taken"))
            .route("/api/v1/query", post(async |QueryParams(Repo { .. })| "taken"))
            .layer(from_fn(rendered));
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(body.into())
            .unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let content_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, content_type, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    #[tokio::test]
    async fn requests_that_do_not_fit_are_problems() {
        const JSON: &str = "application/json; charset=utf-8";
        let large = vec![b' '; 2 * 1024 * 1024 + 1];
        for (path, content_type, body, status) in [
            ("/api/v1/orders", "text/plain", b"{}".to_vec(), 415),
            ("/api/v1/orders", JSON, large.clone(), 413),
            // A handler that uses axum's own extractor.
            ("/api/v1/bytes", JSON, large, 413),
            ("/api/v1/number/x", JSON, vec![], 400),
            ("/api/v1/query?depth=x", JSON, vec![], 400),
        ] {
            let (got, content_type, body) = ask(path, content_type, body).await;
            assert_eq!(
                (got, content_type.as_str()),
                (status, "application/problem+json"),
                "{path}"
            );
            assert_eq!(body["status"], status, "{path}: {body}");
        }
        let (status, ..) = ask("/api/v1/orders", JSON, "{}").await;
        assert_eq!(status, 200);
        let (_, _, body) = ask("/api/v1/query?depth=x", JSON, "").await;
        assert_eq!(
            body["detail"],
            "invalid query: depth: must be a whole number in the allowed range"
        );
        assert_eq!(body["errors"]["depth"][0], "must be a whole number in the allowed range");
        let (_, _, body) = ask("/api/v1/query", JSON, "").await;
        assert_eq!(body["errors"]["depth"][0], "is required", "{body}");
        for query in ["depth=1&path=%FF", "path=a%C3", "path=%e2%82&depth=1"] {
            let (status, _, body) = ask(&format!("/api/v1/query?{query}"), JSON, "").await;
            assert_eq!(
                (status, &body["errors"]["path"][0]),
                (400, &"must be UTF-8".into()),
                "{query}"
            );
        }
    }

    #[test]
    fn errors_of_bodies_name_no_types_of_rust() {
        fn why<T: DeserializeOwned>(body: &str) -> String {
            json_terms(&serde_json::from_str::<T>(body).map(drop).unwrap_err().to_string())
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        #[allow(dead_code, reason = "only parsed")]
        enum Either {
            Number(u8),
            Text(String),
        }
        #[derive(Deserialize)]
        #[serde(tag = "type")]
        #[allow(dead_code, reason = "only parsed")]
        enum Tagged {
            One { a: u8 },
        }
        for (said, expect) in [
            (why::<Repo>("7"), "invalid type: integer `7`, expected an object"),
            (
                why::<Repo>("{\"depth\":-1}"),
                "invalid value: integer `-1`, expected a whole number that is not negative",
            ),
            (
                why::<Repo>("{\"depth\":{}}"),
                "invalid type: object, expected a whole number that is not negative",
            ),
            (why::<Repo>("{}"), "missing field `depth`"),
            (why::<String>("[]"), "invalid type: array, expected a string"),
            (why::<Vec<u8>>("{}"), "invalid type: object, expected an array"),
            (why::<f64>("\"x\""), "invalid type: string \"x\", expected a number"),
            (why::<BTreeMap<String, u8>>("1"), "invalid type: integer `1`, expected an object"),
            (why::<Either>("[]"), "the value has none of the accepted forms"),
            (why::<Tagged>("1"), "invalid type: integer `1`, expected an object"),
            (why::<Tagged>("{\"type\":\"Two\"}"), "unknown variant `Two`, expected `One`"),
        ] {
            assert!(said.starts_with(expect), "{said}");
            assert!(
                !["struct", "enum", "u32", "u8"].iter().any(|word| said.contains(word)),
                "{said}"
            );
        }
    }
}
