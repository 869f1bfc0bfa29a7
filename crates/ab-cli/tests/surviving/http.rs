//! A plain HTTP client of one server and a reader of its event streams, for tests and the benchmark of the control plane.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

/// A server that says nothing for this long counts as stuck.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(directory).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Ada");
        command.env(format!("GIT_{role}_EMAIL"), "ada@example.com");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// An answer of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Asks one server with the operator's token.
#[derive(Debug, Default)]
pub(crate) struct HttpClient {
    pub(crate) address: String,
    pub(crate) token: String,
}

impl HttpClient {
    pub(crate) fn try_ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        let mut stream = self.connect()?;
        stream.write_all(request(method, path, &self.address, headers, body).as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (head, body) = (head.to_ascii_lowercase(), body.to_owned());
        Ok(Answer { status: status.ok_or_else(cut)?, head, body })
    }

    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }

    pub(crate) fn operator(&self) -> Vec<(&'static str, &str)> {
        vec![("authorization", &self.token), ("content-type", "application/json")]
    }

    /// Starts to read the events of a session after a cursor.
    pub(crate) fn follow(&self, id: &str, after: u64) -> io::Result<Follower> {
        let mut stream = self.connect()?;
        let path = format!("/api/v1/sessions/{id}/events?after={after}");
        let request = request("GET", &path, &self.address, &self.operator(), "");
        stream.write_all(request.as_bytes())?;
        Ok(Follower { reader: BufReader::new(stream) })
    }
}

fn request(method: &str, path: &str, host: &str, headers: &[(&str, &str)], body: &str) -> String {
    // HTTP/1.0: the end of the connection is the end of the answer.
    let mut text = format!("{method} {path} HTTP/1.0\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        text.push_str(&format!("host: {host}\r\n"));
    }
    for (name, value) in headers {
        let bearer = if *name == "authorization" { "Bearer " } else { "" };
        text.push_str(&format!("{name}: {bearer}{value}\r\n"));
    }
    format!("{text}content-length: {}\r\n\r\n{body}", body.len())
}

/// A reader of an event stream.
pub(crate) struct Follower {
    reader: BufReader<TcpStream>,
}

impl Follower {
    /// The next event and its id; nothing at the end of the stream.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, Value)>> {
        let (mut id, mut line) = (0, String::new());
        loop {
            line.clear();
            if self.reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.trim().parse().map_err(io::Error::other)?;
            }
            if let Some(text) = line.strip_prefix("data: ") {
                return Ok(Some((id, serde_json::from_str(text)?)));
            }
        }
    }
}
