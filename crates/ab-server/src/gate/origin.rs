//! Origins of pages: scheme, name and port, where a port that is not said is that of the scheme.

use axum::http::uri::Authority;

#[derive(PartialEq, Eq)]
struct Origin {
    scheme: String,
    name: String,
    port: u16,
}

fn parse(text: &str) -> Option<Origin> {
    let (scheme, authority) = text.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let standard = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority: Authority = authority.parse().ok()?;
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return None;
    }
    let rest = &authority.as_str()[authority.host().len()..];
    let port = match rest {
        "" => standard,
        _ => authority.port_u16()?,
    };
    Some(Origin { scheme, name: authority.host().to_ascii_lowercase(), port })
}

/// Whether both name one origin.
pub(crate) fn same(allowed: &str, shown: &str) -> bool {
    match (parse(allowed), parse(shown)) {
        (Some(allowed), Some(shown)) => allowed == shown,
        _ => false,
    }
}

/// Whether a page of this origin came from the host it asks. The scheme does not count: behind a
/// proxy we do not know our own.
pub(crate) fn is_of_host(shown: &str, name: &str, port: Option<u16>) -> bool {
    let Some(origin) = parse(shown) else { return false };
    let standard = if origin.scheme == "https" { 443 } else { 80 };
    origin.name == name && origin.port == port.unwrap_or(standard)
}
