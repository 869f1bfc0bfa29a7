//! Checks Host, Origin and token before every route.
//!
//! With DNS rebinding, an attacker can make any host name point at this server. Therefore the Host
//! header must be an address, `localhost`, or an allowed name. A caller with the token may use any
//! name, because no foreign page knows the token. A request from a web page must come from our own
//! origin or from an allowed one, with or without the token. This also applies to WebSocket
//! upgrades. Each route declares its access. A path without a route requires the admin. Responses
//! to wrong tokens are delayed.

mod browser;
mod guesses;
mod identity;
mod origin;
mod token;

pub use browser::CookieSigningKey;
pub use guesses::TokenGuessLimits;
pub(crate) use guesses::{Guesses, block};
pub(crate) use identity::{Caller, Identity, shown};
pub use origin::AllowedWebOrigin;
pub use token::AccessToken;
pub(crate) use token::random_text;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};

use crate::problem::{Problem, ProblemKind};

/// Decides which callers may use the port.
#[derive(Clone, Debug, Default)]
pub struct HttpAccessPolicy {
    /// The token of the admin. If `None`, every caller that passes the other checks is trusted.
    pub token: Option<AccessToken>,
    /// Host names of this server, in addition to `localhost` and addresses.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may use the port.
    pub allowed_origins: Vec<AllowedWebOrigin>,
    /// The key that signs the cookies of browsers. If `None`, a random key is used, and cookies are
    /// valid only until the process ends.
    pub cookie_signing_key: Option<CookieSigningKey>,
}

/// The kind of page that the response may be shown to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// The request does not come from a page, or it comes from a page of our own origin.
    Own,
    /// A page of another, allowed origin.
    Foreign,
}

impl HttpAccessPolicy {
    fn known_host(&self, host: &Host) -> Result<(), Problem> {
        let named = |allowed: &String| allowed.eq_ignore_ascii_case(&host.name);
        if host.is_address() || host.name == "localhost" || self.allowed_hosts.iter().any(named) {
            return Ok(());
        }
        let detail = format!(
            "host '{}' is not allowed: add it with --allowed-host, or send the token",
            ab_core::error::escape_unprintable(&host.name)
        );
        Err(Problem::new(ProblemKind::Forbidden, detail).titled("Host not allowed"))
    }

    fn page(&self, host: &Host, headers: &HeaderMap) -> Result<Page, Problem> {
        let Some(value) = headers.get(ORIGIN) else { return Ok(Page::Own) };
        let text = value.to_str().unwrap_or_default();
        let allowed = self.allowed_origins.iter().any(|allowed| allowed.is(text));
        if allowed {
            return Ok(Page::Foreign);
        }
        if origin::is_of_host(text, &host.name, host.port) {
            return Ok(Page::Own);
        }
        let detail = format!(
            "origin '{}' is not allowed by this server",
            ab_core::error::escape_unprintable(&String::from_utf8_lossy(value.as_bytes()))
        );
        Err(Problem::new(ProblemKind::Forbidden, detail).titled("Origin not allowed"))
    }
}

/// The Host of a request.
#[derive(Debug)]
pub(crate) struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    /// Whether the host is an IP address. An address cannot be redirected by DNS.
    fn is_address(&self) -> bool {
        let bare = self.name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        match bare {
            Some(name) => name.parse::<std::net::Ipv6Addr>().is_ok(),
            None => self.name.parse::<std::net::Ipv4Addr>().is_ok(),
        }
    }
}

/// Rejects duplicate headers, because a proxy may have validated the other copy.
fn said_once(headers: &HeaderMap) -> Result<(), Problem> {
    for name in [AUTHORIZATION, ORIGIN] {
        if headers.get_all(&name).iter().nth(1).is_some() {
            let message = format!("the {name} header occurs twice");
            return Err(Problem::new(ProblemKind::Invalid, message).titled("Bad header"));
        }
    }
    Ok(())
}

pub(crate) fn host(uri: &Uri, headers: &HeaderMap) -> Result<Host, Problem> {
    let malformed = |why: &str| {
        Problem::new(ProblemKind::Invalid, format!("the Host header {why}")).titled("Bad Host")
    };
    let mut values = headers.get_all(HOST).iter();
    let value = match (uri.authority(), values.next(), values.next()) {
        (Some(authority), _, None) => authority.clone(),
        (None, Some(value), None) => {
            Authority::try_from(value.as_bytes()).map_err(|_| malformed("is invalid"))?
        }
        (None, None, _) => return Err(malformed("is missing")),
        (_, Some(_), Some(_)) | (Some(_), None, Some(_)) => {
            return Err(malformed("occurs twice"));
        }
    };
    if value.as_str().contains('@') || value.host().is_empty() {
        return Err(malformed("is invalid"));
    }
    // Only a port may follow the host name.
    let rest = &value.as_str()[value.host().len()..];
    if !rest.is_empty() && value.port_u16().is_none() {
        return Err(malformed("is invalid"));
    }
    let name = value.host().trim_end_matches('.').to_ascii_lowercase();
    Ok(Host { name, port: value.port_u16() })
}

#[cfg(test)]
mod tests {
    use ab_api::SpaceId;
    use ab_core::{Principal, PrincipalKind};
    use axum::http::{HeaderName, HeaderValue};

    use super::*;
    use crate::access::Access;
    use axum::http::Method;
    use identity::Proof;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        };
        let mut map = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            map.append(name, value);
        }
        map
    }

    fn gate(token: Option<&str>) -> Identity {
        Identity::new(HttpAccessPolicy {
            token: token.map(AccessToken::new),
            allowed_hosts: vec!["box.example".to_owned()],
            allowed_origins: vec!["https://app.example".parse().unwrap()],
            cookie_signing_key: None,
        })
    }

    /// The status of a request, 200 if it is admitted.
    fn status(gate: &Identity, uri: &str, pairs: &[(&str, &str)]) -> u16 {
        let (uri, headers) = (uri.parse().unwrap(), headers(pairs));
        let host = host(&uri, &headers);
        let caller = gate.caller(&Method::GET, &uri, &headers, host.as_ref().ok());
        let access =
            if ["/health", "/ssh"].contains(&uri.path()) { Access::Public } else { Access::Admin };
        let page = host.and_then(|host| gate.page_of(Some(&caller), &host, &headers));
        match page.and_then(|_| gate.admit(&caller, access, None)) {
            Ok(()) => 200,
            Err(problem) => problem.status().as_u16(),
        }
    }

    fn host_of(uri: &Uri, headers: &HeaderMap) -> Host {
        host(uri, headers).unwrap()
    }

    #[test]
    fn hosts_are_ours_or_refused() {
        for (host, expect) in [
            ("localhost", 200),
            ("localhost:3001", 200),
            ("LOCALHOST.", 200),
            ("127.0.0.1:3001", 200),
            ("10.1.2.3", 200),
            ("[::1]:3001", 200),
            ("box.example:80", 200),
            ("Box.Example", 200),
            ("evil.example", 403),
            ("localhost.evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("0x7f.1", 403),
            ("[", 400),
            ("[::1", 400),
            ("", 400),
            ("a b", 400),
            ("user@localhost", 400),
            ("localhost:port", 400),
            ("localhost:99999", 400),
        ] {
            assert_eq!(status(&gate(None), "/mcp", &[("host", host)]), expect, "{host}");
        }
        assert_eq!(status(&gate(None), "/mcp", &[]), 400);
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status(&gate(None), "/mcp", &twice), 400);
        // The host in the request line takes precedence over the Host header.
        let absolute = "http://evil.example/mcp";
        assert_eq!(status(&gate(None), absolute, &[("host", "localhost")]), 403);
    }

    #[test]
    fn what_is_looked_at_is_there_once() {
        let gate = gate(Some("secret"));
        let host = ("host", "localhost");
        let (shown, wrong) = (("authorization", "Bearer secret"), ("authorization", "Bearer x"));
        let (ours, other) = (("origin", "http://localhost"), ("origin", "http://evil.example"));
        for path in ["/mcp", "/health", "/ssh"] {
            for twice in
                [[shown, wrong], [wrong, shown], [shown, shown], [ours, other], [ours, ours]]
            {
                let pairs = [host, twice[0], twice[1]];
                assert_eq!(status(&gate, path, &pairs), 400, "{path} {twice:?}");
                let (uri, headers) = (path.parse().unwrap(), headers(&pairs));
                let asked = gate.page_of(None, &host_of(&uri, &headers), &headers);
                assert!(asked.is_err(), "{path} {twice:?}");
            }
        }
    }

    #[test]
    fn the_token_opens_what_is_closed() {
        let gate = gate(Some("secret"));
        for (path, authorization, expect) in [
            ("/mcp", Some("Bearer secret"), 200),
            ("/mcp", Some("bearer secret"), 200),
            ("/mcp", Some("ApiKey secret"), 200),
            ("/mcp", Some("Bearer  secret "), 200),
            ("/mcp", Some("Bearer Secret"), 401),
            ("/mcp", Some("Bearer secret2"), 401),
            ("/mcp", Some("Bearer "), 401),
            ("/mcp", Some("Basic secret"), 401),
            ("/mcp", Some("secret"), 401),
            ("/mcp", None, 401),
            ("/no/such/route", None, 401),
            ("/mcp?token=secret", None, 401),
            ("/health", None, 200),
            ("/health", Some("Bearer wrong"), 200),
            ("/health/", None, 401),
            ("//health", None, 401),
            ("/ssh", None, 200),
        ] {
            let mut pairs = vec![("host", "localhost")];
            pairs.extend(authorization.map(|value| ("authorization", value)));
            assert_eq!(status(&gate, path, &pairs), expect, "{path} {authorization:?}");
        }
    }

    #[test]
    fn who_shows_the_token_may_use_any_name_but_no_page_may() {
        let gate = gate(Some("secret"));
        let shown = ("authorization", "Bearer secret");
        assert_eq!(status(&gate, "/mcp", &[("host", "any.example"), shown]), 200);
        assert_eq!(status(&gate, "/mcp", &[("host", "any.example")]), 403);
        let page = ("origin", "http://evil.example");
        assert_eq!(status(&gate, "/mcp", &[("host", "any.example"), shown, page]), 403);
        assert_eq!(status(&gate, "/health", &[("host", "any.example")]), 403);
    }

    #[test]
    fn pages_ask_from_our_origin_or_from_one_that_was_allowed() {
        for (host, origin, expect) in [
            ("localhost:3001", "http://localhost:3001", 200),
            ("localhost:3001", "http://localhost:3002", 403),
            ("localhost:3001", "http://127.0.0.1:3001", 403),
            ("localhost", "http://localhost", 200),
            ("localhost", "https://localhost", 200),
            ("localhost:443", "https://localhost", 200),
            ("[::1]:3001", "http://[::1]:3001", 200),
            ("localhost:3001", "https://app.example", 200),
            ("localhost:3001", "https://app.example:443", 200),
            ("localhost:3001", "http://app.example", 403),
            ("localhost:3001", "https://app.example.evil.example", 403),
            ("localhost:3001", "null", 403),
            ("localhost:3001", "", 403),
            ("localhost:3001", "file://", 403),
            ("localhost:3001", "http://localhost:3001@evil.example", 403),
        ] {
            let pairs = [("host", host), ("origin", origin)];
            assert_eq!(status(&gate(None), "/mcp", &pairs), expect, "{host} {origin}");
            // The same check applies to upgrades.
            let pairs = [("host", host), ("origin", origin), ("upgrade", "websocket")];
            assert_eq!(status(&gate(None), "/ssh", &pairs), expect, "{host} {origin}");
        }
        let rebound = [("host", "evil.example"), ("origin", "http://evil.example")];
        assert_eq!(status(&gate(None), "/mcp", &rebound), 403);
    }

    #[test]
    fn an_upgrade_may_name_the_token_in_its_query() {
        let gate = gate(Some("a b&c"));
        let caller = |uri: &str, pairs: &[(&str, &str)]| {
            let mut all = vec![("host", "localhost"), ("upgrade", "websocket")];
            all.extend_from_slice(pairs);
            match gate.caller(&Method::GET, &uri.parse().unwrap(), &headers(&all), None) {
                Caller::Known(_, proof) => Some(proof),
                Caller::Wrong => None,
                Caller::Unknown => Some(Proof::NotRequired),
            }
        };
        let (trusted, wrong, unknown) = (Some(Proof::Token), None, Some(Proof::NotRequired));
        assert_eq!(caller("/ssh?token=a%20b%26c", &[]), trusted);
        assert_eq!(caller("/ssh?x=1&token=a+b%26c", &[]), trusted);
        assert_eq!(caller("/ssh?token=wrong", &[]), wrong);
        assert_eq!(caller("/ssh?token=", &[]), wrong);
        assert_eq!(caller("/ssh?token=%zz", &[]), unknown);
        assert_eq!(caller("/ssh", &[("authorization", "Bearer x")]), wrong);
        assert_eq!(caller("/ssh", &[("authorization", "Bearer a b&c")]), trusted);
        assert_eq!(caller("/ssh", &[]), unknown);
    }

    #[test]
    fn an_agents_token_opens_only_its_own_session() {
        let (gate, caller) = (gate(Some("secret")), Caller::agent("s1"));
        let status = |access, session: Option<&str>| {
            let agent = session.map(|session| Principal::new(PrincipalKind::Agent, session));
            match gate.admit(&caller, access, agent.as_ref()) {
                Ok(()) => 200,
                Err(problem) => problem.status().as_u16(),
            }
        };
        assert_eq!(status(Access::SessionAgent, Some("s1")), 200);
        assert_eq!(status(Access::SessionAgent, Some("s2")), 403);
        assert_eq!(status(Access::SessionAgent, None), 403);
        assert_eq!(status(Access::SpaceAgent, Some("s1")), 403);
        assert_eq!(status(Access::Admin, Some("s1")), 403);
        assert_eq!(status(Access::Public, None), 200);
    }

    #[test]
    fn an_agent_of_a_space_opens_only_its_own_space() {
        let gate = gate(Some("secret"));
        let (own, other) = (SpaceId::generate(), SpaceId::generate());
        let caller = Caller::space_agent(own);
        let status = |access, kind, id: SpaceId| {
            let agent = Principal::new(kind, &id.to_string());
            match gate.admit(&caller, access, Some(&agent)) {
                Ok(()) => 200,
                Err(problem) => problem.status().as_u16(),
            }
        };
        let kind = PrincipalKind::SpaceAgent;
        assert_eq!(status(Access::SpaceAgent, kind, own), 200);
        assert_eq!(status(Access::SpaceAgent, kind, other), 403);
        assert_eq!(status(Access::SpaceAgent, PrincipalKind::Agent, own), 403);
        assert_eq!(status(Access::SessionAgent, kind, own), 403);
        assert_eq!(status(Access::Admin, kind, own), 403);
        assert_eq!(status(Access::Public, kind, other), 200);
    }

    #[test]
    fn the_cookie_counts_under_its_host_and_from_its_own_page() {
        let gate = gate(Some("secret"));
        let (name, path) = gate.login_link().unwrap();
        let (name, ticket) = (name.to_owned(), path.split_once('=').unwrap().1);
        let link = headers(&[("host", &name)]);
        let link = host_of(&"/ui/login".parse().unwrap(), &link);
        let set = gate.redeem(&link, ticket).unwrap().unwrap();
        let cookie = set.split(';').next().unwrap();
        let (own, other) = (format!("http://{name}:3001"), format!("http://{name}:3002"));
        let address = format!("{name}:3001");
        let known = |method: Method, host: &str, origin: Option<&str>| {
            let mut pairs = vec![("host", host), ("cookie", cookie)];
            pairs.extend(origin.map(|origin| ("origin", origin)));
            let (uri, headers) = ("/x".parse().unwrap(), headers(&pairs));
            let host = host_of(&uri, &headers);
            gate.caller(&method, &uri, &headers, Some(&host)).is_admin()
        };
        assert!(known(Method::GET, &address, None));
        assert!(known(Method::POST, &address, Some(&own)));
        assert!(!known(Method::POST, &address, None));
        assert!(!known(Method::POST, &address, Some(&other)));
        assert!(!known(Method::GET, &address, Some("https://app.example")));
        assert!(!known(Method::GET, "localhost:3001", None));
        assert!(!known(Method::GET, "127.0.0.1:3001", None));
    }
}
