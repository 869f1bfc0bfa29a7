//! A git server over HTTP: git's own `http-backend`, with a check of one header if a password is
//! required.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// Serves every repository of a directory until the test ends.
#[derive(Debug)]
pub struct HttpRemote {
    address: String,
    credentials: Arc<Mutex<Vec<String>>>,
}

impl HttpRemote {
    /// Answers every request.
    pub fn open(directory: &Path) -> HttpRemote {
        Self::serve(directory, None)
    }

    /// Requests need exactly this `Authorization`; others are answered with 401.
    pub fn start(directory: &Path, authorization: &'static str) -> HttpRemote {
        Self::serve(directory, Some(authorization))
    }

    fn serve(directory: &Path, authorization: Option<&'static str>) -> HttpRemote {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let credentials = Arc::new(Mutex::new(Vec::new()));
        let (seen, directory) = (Arc::clone(&credentials), directory.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, directory) = (Arc::clone(&seen), directory.clone());
                // A client may close the connection early.
                std::thread::spawn(move || drop(answer(stream, &directory, authorization, &seen)));
            }
        });
        HttpRemote { address, credentials }
    }

    pub fn url(&self, repository: &str) -> String {
        format!("http://{}/{repository}", self.address)
    }

    /// The values of `Authorization` since the last call.
    pub fn credentials(&self) -> Vec<String> {
        std::mem::take(&mut *self.credentials.lock().unwrap())
    }
}

fn answer(
    mut stream: TcpStream,
    directory: &Path,
    authorization: Option<&str>,
    seen: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |wanted: &str| {
        let mut pairs = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
        pairs.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.to_owned())
    };
    let length = header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let credentials = header("authorization");
    seen.lock().unwrap().extend(credentials.clone());
    if authorization.is_some() && credentials.as_deref() != authorization {
        return stream.write_all(
            b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"test\"\r\nContent-Length: 0\r\n\
              Connection: close\r\n\r\n",
        );
    }
    let mut words = lines.first().map_or("", String::as_str).split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut backend = Command::new("git");
    backend.arg("http-backend").env("GIT_PROJECT_ROOT", directory).env("GIT_HTTP_EXPORT_ALL", "1");
    backend.env("REQUEST_METHOD", method).env("PATH_INFO", path).env("QUERY_STRING", query);
    backend.env("REMOTE_USER", "ann").env("REMOTE_ADDR", "127.0.0.1");
    for (variable, name) in [
        ("CONTENT_TYPE", "content-type"),
        ("CONTENT_LENGTH", "content-length"),
        ("HTTP_CONTENT_ENCODING", "content-encoding"),
        ("GIT_PROTOCOL", "git-protocol"),
    ] {
        if let Some(value) = header(name) {
            backend.env(variable, value);
        }
    }
    let mut backend = backend.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    backend.stdin.take().unwrap().write_all(&body)?;
    let output = backend.wait_with_output()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n")?;
    stream.write_all(&output.stdout)
}
