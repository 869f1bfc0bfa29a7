//! Runs `serve` on a sample repository: in the foreground, or once with its first commands.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::sample;
use crate::failure::Failure;
use crate::step::quoted;

/// The default port of `serve`.
const PORT: u16 = 3001;

/// If the server takes longer to answer, it counts as broken.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The label of the line in which the server prints its link.
const LINK: &str = "browser";

/// The sample repository, the data directory beside it, and the program.
#[derive(Debug)]
pub(super) struct Place<'a> {
    binary: &'a Path,
    sample: PathBuf,
    data: PathBuf,
}

impl Place<'_> {
    /// Makes the sample repository in `directory` unless it exists.
    pub(super) fn make<'a>(binary: &'a Path, directory: &Path) -> Result<Place<'a>> {
        let place =
            Place { binary, sample: directory.join("sample"), data: directory.join("data") };
        sample::make(&place.sample)?;
        Ok(place)
    }

    /// Replaces this process by the server. Returns only if this fails.
    pub(super) fn serve(&self) -> Result<(), Failure> {
        let port = match TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)) {
            Ok(_) => PORT,
            Err(error) => {
                println!("\nPort {PORT} cannot be used ({error}); the server takes a free one.");
                0
            }
        };
        println!("\nTry these in another terminal, in this order:\n");
        println!("  cd {}", quoted(&self.sample.to_string_lossy()));
        for command in commands() {
            println!("  {}", self.line(&command));
        }
        println!("\nThe server runs here until you press Ctrl-C. Its link opens the page once:\n");
        // The server replaces this process and so gets the terminal's signals.
        let error = self.server(port).exec();
        Err(Failure::new(format!("start {}: {error}", self.binary.display())))
    }

    /// Starts the server, runs the commands with every question approved, checks the branch that
    /// they deliver, and stops the server.
    pub(super) fn once(&self) -> Result<(), Failure> {
        let (server, link) = Running::start(self.server(0))?;
        opens(&link)?;
        for command in commands() {
            println!("\n$ {}", self.line(&command));
            let mut child = Command::new(self.binary);
            child.current_dir(&self.sample).args(self.arguments(&command)).stdin(Stdio::null());
            if command.first() == Some(&"task") {
                child.args(["--approve", "always"]);
            }
            let status = child.status().context("start the command")?;
            if !status.success() {
                return Err(Failure::step("once", &self.line(&command), status));
            }
        }
        let branch = self.delivered()?;
        let status = server.end()?;
        if !status.success() {
            return Err(Failure::step("once", "the server after SIGINT", status));
        }
        println!("\nThe task made branch {branch} with this commit:");
        print!("{}", sample::git(&self.sample, &["show", "--stat", &branch])?);
        Ok(())
    }

    fn server(&self, port: u16) -> Command {
        let mut command = Command::new(self.binary);
        command.args(["serve", "--port", &port.to_string(), "--data-dir"]).arg(&self.data);
        command
    }

    fn arguments<'a>(&self, command: &[&'a str]) -> Vec<&'a str> {
        [command, &["--data-dir", "../data"]].concat()
    }

    /// The command as a person types it in the sample repository.
    fn line(&self, command: &[&str]) -> String {
        let words = self.arguments(command);
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        format!("{} {}", quoted(&self.binary.to_string_lossy()), words.join(" "))
    }

    /// The only branch that is not the sample's own branch.
    fn delivered(&self) -> Result<String> {
        let branches = sample::branches(&self.sample)?;
        let made: Vec<&String> = branches.iter().filter(|name| *name != sample::BRANCH).collect();
        ensure!(made.len() == 1, "the task made no branch, or several: {branches:?}");
        Ok(made[0].clone())
    }
}

/// The suggested commands: give a task and watch it, list the sessions, show the changes of the
/// last session.
fn commands() -> [Vec<&'static str>; 3] {
    [
        vec!["task", "Describe this project", "--follow"],
        vec!["session", "list"],
        vec!["session", "diff"],
    ]
}

/// A server that has printed its start message. Dropping it kills the process.
#[derive(Debug)]
struct Running {
    child: Child,
}

impl Running {
    /// Starts the server and returns its link for the browser.
    fn start(mut command: Command) -> Result<(Running, String)> {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start the server")?;
        let errors = child.stderr.take();
        let running = Running { child };
        let mut errors = BufReader::new(errors.context("read from the server")?);
        let link = loop {
            let mut line = String::new();
            let length = errors.read_line(&mut line).context("read the server's notice")?;
            eprint!("{line}");
            ensure!(length > 0, "the server ended before it printed a link");
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [LINK, link] = words[..] {
                break link.to_owned();
            }
        };
        thread::spawn(move || io::copy(&mut errors, &mut io::stderr()));
        Ok((running, link))
    }

    /// Interrupts the server as Ctrl-C does, and waits for it.
    fn end(mut self) -> Result<ExitStatus> {
        let sent = Command::new("sh")
            .args(["-c", "kill -INT \"$1\"", "sh", &self.child.id().to_string()])
            .status()
            .context("interrupt the server")?;
        ensure!(sent.success(), "interrupt the server: {sent}");
        self.child.wait().context("wait for the server")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process has ended already, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens the link as a browser does. The answer must set a cookie.
fn opens(link: &str) -> Result<()> {
    let rest = link.strip_prefix("http://").context("the link is not an http URL")?;
    let (host, path) = rest.split_once('/').context("the link has no path")?;
    let port: u16 = host.rsplit(':').next().unwrap_or_default().parse().context("find the port")?;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("reach the server")?;
    stream.set_read_timeout(Some(TIMEOUT)).context("set the timeout of the connection")?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        .context("ask the server")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("read the server's answer")?;
    let headers = answer.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase();
    let is_good = headers.starts_with("http/1.1 200") && headers.contains("\nset-cookie:");
    ensure!(is_good, "the link does not open the page: {headers}");
    Ok(())
}

/// Removes the files of an earlier run.
pub(super) fn clear(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("remove {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn commands_can_be_pasted() {
        let scratch = Scratch::new("xtask up").unwrap();
        let binary = scratch.path().join("agent-backend");
        let place = Place::make(&binary, scratch.path()).unwrap();
        let [task, ..] = commands();
        let expect = format!(
            "'{}' task 'Describe this project' --follow --data-dir ../data",
            binary.display()
        );
        assert_eq!(place.line(&task), expect);
        let error = place.delivered().unwrap_err();
        assert!(error.to_string().contains("no branch"), "{error}");
    }

    #[test]
    fn a_server_that_ends_early_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'error: the port is taken' >&2; exit 4"]);
        let error = Running::start(command).unwrap_err();
        assert!(error.to_string().contains("before it printed a link"), "{error}");
    }

    #[test]
    fn a_server_is_ended_by_an_interrupt() {
        // A shell cannot trap a signal that was ignored when it started, as in a background job of
        // another shell.
        let mut command = Command::new("env");
        let script = "trap 'exit 7' INT; echo '  browser    http://x.localhost:1/ui' >&2; \
                      while :; do read -r line < /dev/null || :; done";
        command.args(["--default-signal=INT", "sh", "-c", script]);
        let (server, link) = Running::start(command).unwrap();
        assert_eq!(link, "http://x.localhost:1/ui");
        assert_eq!(server.end().unwrap().code(), Some(7));
    }

    #[test]
    fn a_link_that_sets_no_cookie_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = format!("http://x.localhost:{}/ui", listener.local_addr().unwrap().port());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let request = BufReader::new(stream.try_clone().unwrap()).lines();
            assert!(request.map(Result::unwrap).any(|line| line.is_empty()));
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nSet-Cookie: no").unwrap();
        });
        let error = opens(&link).unwrap_err();
        server.join().unwrap();
        assert!(error.to_string().contains("does not open the page"), "{error}");
    }
}
