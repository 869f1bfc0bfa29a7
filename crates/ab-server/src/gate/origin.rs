//! Origins of pages: scheme, name and port. If the port is missing, it is the default port of the
//! scheme.

use std::str::FromStr;

use axum::http::uri::Authority;

/// The origin of web pages, such as `https://app.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedWebOrigin {
    scheme: String,
    name: String,
    port: u16,
}

fn parse(text: &str) -> Option<AllowedWebOrigin> {
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
    Some(AllowedWebOrigin { scheme, name: authority.host().to_ascii_lowercase(), port })
}

impl AllowedWebOrigin {
    /// Whether the value of the Origin header is this origin.
    pub(crate) fn is(&self, shown: &str) -> bool {
        parse(shown).as_ref() == Some(self)
    }
}

impl FromStr for AllowedWebOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let example = "must be a scheme and a host name, such as https://app.example.com";
        parse(text).ok_or_else(|| example.to_owned())
    }
}

/// Whether the origin of a page is the host of the request. The scheme is ignored, because a server
/// behind a proxy does not know its own scheme.
pub(crate) fn is_of_host(shown: &str, name: &str, port: Option<u16>) -> bool {
    let Some(origin) = parse(shown) else { return false };
    let standard = if origin.scheme == "https" { 443 } else { 80 };
    origin.name == name && origin.port == port.unwrap_or(standard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_and_a_name_and_nothing_more() {
        for text in ["http://a", "https://a.example", "https://a.example:8443", "http://[::1]:80"] {
            assert!(text.parse::<AllowedWebOrigin>().is_ok(), "{text}");
        }
        for text in
            ["", "foo", "*", "null", "a.example", "ftp://a", "http://", "http://a/b", "http://u@a"]
        {
            assert!(text.parse::<AllowedWebOrigin>().is_err(), "{text}");
        }
        assert!(
            "https://A.example:443".parse::<AllowedWebOrigin>().unwrap().is("https://a.EXAMPLE")
        );
    }
}
