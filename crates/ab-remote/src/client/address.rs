//! URLs of remote workspaces. They are parsed once, in this module, and errors say what is wrong
//! with them.
//!
//! No error and no `Display` output contains the secret parts of a URL: a password, or a query with
//! a token.

use std::fmt;
use std::net::IpAddr;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use http::Uri;
use percent_encoding::percent_decode_str;

use super::endpoint::{Proxy, RemoteEndpoint, SshEndpoint, WebSocketEndpoint};

/// The path of the WebSocket of an agent-backend daemon, if the URL has no path.
const SOCKET_PATH: &str = "/ssh";
const SSH_PORT: u16 = 22;

/// A host name or IP address with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The name in lower case. An IPv6 address has no brackets.
    name: String,
    port: u16,
}

impl HostPort {
    pub fn new(host: &str, port: u16) -> Self {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Self { name: bare.unwrap_or(host).to_ascii_lowercase(), port }
    }

    pub fn host(&self) -> &str {
        &self.name
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the host is the local machine. This is a loopback address or a `localhost` name.
    /// Makes no DNS lookup.
    pub fn is_loopback(&self) -> bool {
        let name = self.name.trim_end_matches('.');
        let address = name.parse::<IpAddr>().map(|address| address.to_canonical());
        name == "localhost"
            || name.ends_with(".localhost")
            || address.is_ok_and(|address| address.is_loopback())
    }

    /// The host as it is written in `known_hosts` files.
    pub(crate) fn known_as(&self) -> String {
        match self.port {
            SSH_PORT => self.name.clone(),
            port => format!("[{}]:{port}", self.name),
        }
    }

    fn in_url(&self) -> String {
        if self.name.contains(':') { format!("[{}]", self.name) } else { self.name.clone() }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.in_url(), self.port)
    }
}

/// Whether the transport uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportSecurity {
    Plain,
    Tls,
}

/// The URL of a WebSocket.
#[derive(Clone, PartialEq, Eq)]
pub struct WebSocketUrl {
    security: TransportSecurity,
    host: HostPort,
    /// Path and query.
    resource: String,
}

impl WebSocketUrl {
    /// Parses a URL such as `wss://host/ssh`. `http` and `https` are accepted in place of `ws` and
    /// `wss`.
    pub fn parse(url: &str) -> Result<Self> {
        let uri = uri(url)?;
        let scheme = uri.scheme_str().unwrap_or_default().to_ascii_lowercase();
        Self::of(&scheme, &uri).unwrap_or_else(|| Err(foreign(&scheme)))
    }

    /// Parses a URL with this scheme. Returns `None` if it is not the scheme of a WebSocket.
    fn of(scheme: &str, uri: &Uri) -> Option<Result<Self>> {
        let (cover, default) = match scheme {
            "ws" | "http" => (TransportSecurity::Plain, 80),
            "wss" | "https" => (TransportSecurity::Tls, 443),
            _ => return None,
        };
        let web = matches!(scheme, "http" | "https");
        Some(host(uri, default).and_then(|host| {
            if user_info(uri).is_some() {
                return Err(invalid("the URL of a WebSocket must not contain a user name"));
            }
            if let Some(secret) = uri.query().and_then(secret_in) {
                let message = format!(
                    "the query of the URL contains a {secret}, but URLs appear in shell histories, process lists and logs"
                );
                return Err(invalid(message).with_hint(TOKEN_ELSEWHERE));
            }
            let resource = uri.path_and_query().map_or("/", |resource| resource.as_str());
            let resource = match (uri.path(), uri.query()) {
                ("/" | "", None) if web => SOCKET_PATH.to_owned(),
                ("/" | "", Some(query)) if web => format!("{SOCKET_PATH}?{query}"),
                _ => resource.to_owned(),
            };
            Ok(Self { security: cover, host, resource })
        }))
    }

    pub fn security(&self) -> TransportSecurity {
        self.security
    }

    pub fn host(&self) -> &HostPort {
        &self.host
    }

    /// The complete URL, with its query.
    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.origin(), self.resource)
    }

    pub(crate) fn query(&self) -> Option<&str> {
        self.resource.split_once('?').map(|(_, query)| query)
    }

    fn origin(&self) -> String {
        let host = self.host.in_url();
        match (self.security, self.host.port) {
            (TransportSecurity::Plain, 80) => format!("ws://{host}"),
            (TransportSecurity::Tls, 443) => format!("wss://{host}"),
            (TransportSecurity::Plain, port) => format!("ws://{host}:{port}"),
            (TransportSecurity::Tls, port) => format!("wss://{host}:{port}"),
        }
    }
}

impl fmt::Display for WebSocketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.resource.split('?').next().unwrap_or_default();
        write!(f, "{}{path}", self.origin())
    }
}

impl fmt::Debug for WebSocketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses the URL of a workspace. Returns its endpoint and the root directory on the server.
pub(crate) fn parsed(url: &str) -> Result<(RemoteEndpoint, Option<String>)> {
    let uri = uri(url)?;
    let scheme = uri.scheme_str().unwrap_or_default().to_ascii_lowercase();
    if let Some(address) = WebSocketUrl::of(&scheme, &uri) {
        return Ok((RemoteEndpoint::WebSocket(WebSocketEndpoint::from_url(address?)), None));
    }
    if scheme != "ssh" {
        return Err(foreign(&scheme));
    }
    let host = host(&uri, SSH_PORT)?;
    let user = match user_info(&uri) {
        None => {
            return Err(invalid(format!("invalid URL: the user name for {host} is missing"))
                .with_hint(USER_EXAMPLE));
        }
        Some(info) if info.contains(':') => {
            return Err(invalid("the URL must not contain a password"));
        }
        Some(user) => decoded(user)?,
    };
    if user.is_empty() {
        return Err(invalid(format!("invalid URL: the user name for {host} is missing"))
            .with_hint(USER_EXAMPLE));
    }
    if uri.query().is_some() {
        return Err(invalid("the URL of an SSH server must not have a query"));
    }
    let ssh = SshEndpoint { host, ..SshEndpoint::new(user, "") };
    Ok((RemoteEndpoint::Ssh(ssh), root(uri.path())?))
}

/// The root directory in the path of a URL. A path that begins with `/~` is relative to the user's
/// home.
fn root(path: &str) -> Result<Option<String>> {
    let path = decoded(path)?;
    let path = path.as_str();
    Ok(match (path, path.strip_prefix("/~/")) {
        ("" | "/", _) => None,
        ("/~", _) | (_, Some("")) => Some(".".to_owned()),
        (_, Some(below)) => Some(below.to_owned()),
        (_, None) => Some(path.to_owned()),
    })
}

/// Parses the URL of a proxy: `http://user:password@host:port`.
pub(crate) fn proxy(url: &str) -> Result<Proxy> {
    // Proxy settings often have no scheme.
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri = uri(&whole)?;
    match uri.scheme_str() {
        Some("http") => {}
        scheme => {
            let scheme = scheme.unwrap_or_default();
            let message =
                format!("the URL of a proxy must start with http://, not with {scheme}://");
            return Err(invalid(message));
        }
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(invalid("the URL of a proxy must not have a path"));
    }
    let mut proxy = Proxy::new(host(&uri, 3128)?);
    if let Some(info) = user_info(&uri) {
        let (user, password) = info.split_once(':').unwrap_or((info, ""));
        proxy.credentials = Some((decoded(user)?, decoded(password)?.into()));
    }
    Ok(proxy)
}

fn uri(url: &str) -> Result<Uri> {
    let uri: Uri = url
        .trim()
        .parse()
        .map_err(|error| invalid(format!("invalid URL: {error}")).with_hint(EXAMPLES))?;
    match uri.scheme_str() {
        None => Err(invalid("invalid URL: the scheme is missing").with_hint(EXAMPLES)),
        Some(_) => Ok(uri),
    }
}

const EXAMPLES: &str =
    "for example wss://host/ssh, ws://127.0.0.1:3001/ssh or ssh://user@host:22/path";

const USER_EXAMPLE: &str = "write ssh://USER@HOST/PATH";

const TOKEN_ELSEWHERE: &str =
    "remove it from the URL, and pass the token with --token-file or in AGENT_BACKEND_AUTH_TOKEN";

/// The kind of secret in a query. `None` if no field of the query contains a secret.
fn secret_in(query: &str) -> Option<&'static str> {
    query.split(['&', ';']).find_map(|field| {
        let name = field.split_once('=').map_or(field, |(name, _)| name);
        let name = percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
        ["token", "password", "secret"].into_iter().find(|secret| name.ends_with(secret))
    })
}

fn host(uri: &Uri, default: u16) -> Result<HostPort> {
    let name = uri.host().unwrap_or_default();
    if name.is_empty() {
        return Err(invalid("the URL has no host").with_hint(EXAMPLES));
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let after = authority.rsplit_once(']').map_or(authority, |(_, after)| after);
    let port = match (uri.port_u16(), after.rsplit_once('@').map_or(after, |(_, it)| it)) {
        (Some(0), _) => return Err(invalid("the port in the URL is 0")),
        (Some(port), _) => port,
        (None, rest) if rest.contains(':') => {
            return Err(invalid("invalid port in the URL: must be 1 to 65535"));
        }
        (None, _) => default,
    };
    Ok(HostPort::new(name, port))
}

fn user_info(uri: &Uri) -> Option<&str> {
    uri.authority()?.as_str().rsplit_once('@').map(|(info, _)| info)
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    match decoded {
        Ok(text) if !text.contains('\0') => Ok(text.into_owned()),
        _ => Err(invalid("the URL contains an invalid percent escape")),
    }
}

fn foreign(scheme: &str) -> Error {
    invalid(format!("unknown URL scheme '{scheme}'")).with_hint(EXAMPLES)
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_websockets() {
        for (url, whole) in [
            ("ws://127.0.0.1:3001/ssh", "ws://127.0.0.1:3001/ssh"),
            ("WSS://Box.Example/ssh", "wss://box.example/ssh"),
            ("wss://box.example:443/a/b", "wss://box.example/a/b"),
            ("ws://box.example", "ws://box.example/"),
            ("http://localhost:3001", "ws://localhost:3001/ssh"),
            ("https://box.example/", "wss://box.example/ssh"),
            ("https://box.example/at/ssh", "wss://box.example/at/ssh"),
            ("ws://[::1]:3001/ssh", "ws://[::1]:3001/ssh"),
            (" ws://h/ssh\n", "ws://h/ssh"),
        ] {
            let address = WebSocketUrl::parse(url).unwrap();
            assert_eq!((address.url().as_str(), address.to_string().as_str()), (whole, whole));
        }
    }

    #[test]
    fn a_query_is_sent_and_not_shown() {
        let address = WebSocketUrl::parse("https://h/?tenant=secret").unwrap();
        assert_eq!(address.url(), "wss://h/ssh?tenant=secret");
        assert_eq!((address.to_string(), format!("{address:?}")), {
            ("wss://h/ssh".to_owned(), "wss://h/ssh".to_owned())
        });
    }

    #[test]
    fn a_token_in_a_url_is_told_where_it_belongs() {
        let error = WebSocketUrl::parse("ws://h/ssh?token=x").unwrap_err();
        let hint = error.hint().unwrap_or_default();
        for place in ["--token-file", "AGENT_BACKEND_AUTH_TOKEN"] {
            assert!(hint.contains(place), "{hint}");
        }
    }

    #[test]
    fn urls_of_ssh_servers() {
        for (url, user, host, root) in [
            ("ssh://ada@box.example", "ada", "box.example:22", None),
            ("ssh://ada@box.example/", "ada", "box.example:22", None),
            ("ssh://ada@[::1]:2222/srv/a%20b", "ada", "[::1]:2222", Some("/srv/a b")),
            ("ssh://a%40b@h:1/~", "a@b", "h:1", Some(".")),
            ("ssh://ada@h/~/", "ada", "h:22", Some(".")),
            ("ssh://ada@h/~/work", "ada", "h:22", Some("work")),
        ] {
            let (endpoint, found) = parsed(url).unwrap();
            let RemoteEndpoint::Ssh(ssh) = endpoint else { panic!("{url}") };
            assert_eq!((ssh.user.as_str(), ssh.host.to_string().as_str()), (user, host), "{url}");
            assert_eq!(found.as_deref(), root, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_repeated() {
        for (url, what) in [
            ("", "invalid URL"),
            ("box.example", "the scheme is missing"),
            ("/srv/project", "the scheme is missing"),
            ("ftp://h/", "unknown URL scheme 'ftp'"),
            ("ws:///ssh", "invalid URL"),
            ("ws://h:0/ssh", "port in the URL is 0"),
            ("ws://h:99999/ssh", "invalid port in the URL"),
            ("ws://h:secret/ssh", "invalid port in the URL"),
            ("ws://secret@h/ssh", "must not contain a user name"),
            ("ws://h/ssh?token=secret", "contains a token"),
            ("http://h/?a=b&access_Token=secret", "contains a token"),
            ("wss://h/ssh?%74oken=secret", "contains a token"),
            ("wss://h/ssh?password=hidden-secret", "contains a password"),
            ("ssh://h/srv", "the user name for h:22 is missing"),
            ("ssh://@h/srv", "the user name for h:22 is missing"),
            ("ssh://ada:secret@h/srv", "must not contain a password"),
            ("ssh://ada@h/srv?token=secret", "must not have a query"),
            ("ssh://ada@h/%ff", "invalid percent escape"),
            ("ssh://ada@h/%00", "invalid percent escape"),
            ("ws://h/a secret b", "invalid URL"),
        ] {
            let error = parsed(url).unwrap_err();
            assert_eq!(
                (error.code(), error.kind()),
                (ErrorCode::InvalidConfiguration, ErrorKind::Invalid)
            );
            assert!(error.message().contains(what), "{url}: {error}");
            assert!(!format!("{error:?}").contains("secret"), "{url}: {error:?}");
        }
    }

    #[test]
    fn urls_of_proxies() {
        let plain = proxy("proxy.example:8080").unwrap();
        assert_eq!((plain.host.to_string().as_str(), &plain.credentials), {
            ("proxy.example:8080", &None)
        });
        let known = proxy("http://ada:a%3Ab@[::1]").unwrap();
        assert_eq!(known.host.to_string(), "[::1]:3128");
        assert_eq!(known.credentials, Some(("ada".to_owned(), "a:b".into())));
        assert!(!format!("{known:?}").contains("a:b"));
        for (url, what) in
            [("socks5://h:1", "socks5://"), ("http://h/path", "path"), ("http://", "URL")]
        {
            assert!(proxy(url).unwrap_err().message().contains(what), "{url}");
        }
    }

    #[test]
    fn hosts_are_known_by_name_and_port() {
        assert_eq!(HostPort::new("Box.Example", 22).known_as(), "box.example");
        assert_eq!(HostPort::new("box", 2222).known_as(), "[box]:2222");
        assert_eq!(HostPort::new("[::1]", 22).known_as(), "::1");
        assert_eq!(HostPort::new("::1", 23).known_as(), "[::1]:23");
    }
}
