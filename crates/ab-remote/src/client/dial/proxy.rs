//! Connects through a proxy with HTTP `CONNECT`.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::failure::{ConnectError, TimeLeft, lower};
use super::page::{self, LOOKED_AT, Page};
use super::tcp;
use crate::client::address::HostPort;
use crate::client::endpoint::Proxy;

/// Maximum length in bytes of a response head.
const MAX_ANSWER: usize = 16 * 1024;
/// How long to wait for the body of a refusal from the proxy.
const PAGE_TIME: Duration = Duration::from_secs(2);

/// Connects to `host` through the proxy.
pub(super) async fn connect(
    proxy: &Proxy,
    host: &HostPort,
    time_left: TimeLeft,
) -> Result<TcpStream, ConnectError> {
    let mut stream = tcp::connect(&proxy.host, time_left).await?;
    let who = format!("{host} by the proxy {}", proxy.host);
    let asking = async {
        stream.write_all(request(proxy, host).as_bytes()).await?;
        answer(&mut stream).await
    };
    let asked = time_left.spend("reach", &who, asking).await?;
    let answer = asked.map_err(|error| {
        ConnectError::lost("reach", &who, lower(&error.to_string())).with_source(error)
    })?;
    match status(&answer) {
        Some(200..=299) if !is_page(&answer) => Ok(stream),
        Some(407) => Err(ConnectError::denied(format!(
            "cannot reach {who}: the proxy requires a login (HTTP status 407)"
        ))
        .with_hint("add a user and a password to its URL: http://user:password@proxy:port")),
        Some(status) => {
            let body = time_left.spend("reach", &who, body(&mut stream, &answer)).await?;
            let content_type = header(&answer, "content-type").map(str::as_bytes);
            let page = Page { status, content_type, body: &body };
            let secret = proxy.credentials.iter().map(|(_, password)| password.reveal());
            let why = page.describe("the proxy", "connecting", secret);
            let error = ConnectError::lost("reach", &who, why);
            Err(if page.is_html() { error.with_hint(page::PROXY_HINT) } else { error })
        }
        None => Err(ConnectError::lost("reach", &who, "the proxy does not speak HTTP")),
    }
}

fn request(proxy: &Proxy, host: &HostPort) -> String {
    let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n");
    if let Some((user, password)) = &proxy.credentials {
        let pair = STANDARD.encode(format!("{user}:{}", password.reveal()));
        request.push_str(&format!("Proxy-Authorization: Basic {pair}\r\n"));
    }
    request.push_str("\r\n");
    request
}

/// Reads the head of the proxy's response. Bytes after it would come from the host, which sends
/// nothing before the client does.
async fn answer(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::with_capacity(256);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_ANSWER {
            return Err(std::io::Error::other("the proxy's answer is too long"));
        }
        // Read byte by byte, because bytes after the head must remain in the stream. The cost is
        // small, because heads are short.
        match stream.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(std::io::Error::other("the proxy hung up"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

/// Reads the start of the body of a refusal, with a short timeout.
async fn body(stream: &mut TcpStream, head: &[u8]) -> Vec<u8> {
    let length = header(head, "content-length").and_then(|length| length.parse().ok());
    let most = length.map_or(LOOKED_AT, |length: usize| length.min(LOOKED_AT));
    let mut body = Vec::new();
    let reading = async {
        let mut rest = stream.take(most as u64);
        while let Ok(1..) = rest.read_buf(&mut body).await {}
    };
    // After a timeout, the bytes that have arrived are used.
    let _ = timeout(PAGE_TIME, reading).await;
    body
}

/// Whether a successful response contains a web page, as a captive portal sends.
fn is_page(head: &[u8]) -> bool {
    let html = header(head, "content-type").is_some_and(|kind| kind.starts_with("text/html"));
    html && header(head, "content-length").is_some_and(|length| length != "0")
}

/// The value of a response header.
fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = std::str::from_utf8(head).ok()?.split("\r\n").skip(1);
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
    Some(value.trim())
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_and_answered() {
        let host = HostPort::new("box.example", 443);
        let mut proxy = Proxy::parse("proxy:3128").unwrap();
        assert_eq!(
            request(&proxy, &host),
            "CONNECT box.example:443 HTTP/1.1\r\nHost: box.example:443\r\n\r\n"
        );
        proxy.credentials = Some(("ada".to_owned(), "lace".into()));
        assert!(request(&proxy, &host).contains("\r\nProxy-Authorization: Basic YWRhOmxhY2U=\r\n"));
        for (answer, expect) in [
            (&b"HTTP/1.1 200 Connection established\r\n\r\n"[..], Some(200)),
            (b"HTTP/1.0 407\r\nA: b\r\n\r\n", Some(407)),
            (b"SSH-2.0-x\r\n\r\n", None),
            (b"\xff\xff\r\n\r\n", None),
            (b"HTTP/1.1 no\r\n\r\n", None),
        ] {
            assert_eq!(status(answer), expect);
        }
    }
}
