//! OpenSSH's `sftp`, at our server and at OpenSSH's own, with one cipher.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::fixture::{Fixture, HUGE, HUGE_SIZE};
use crate::measure::{Bar, Pair, Table};
use crate::our_daemon;
use crate::programs::{Daemon, Running, free_port};

/// Where Debian puts a program that is not for everybody's `PATH`.
const SSHD: &str = "/usr/sbin/sshd";
/// What OpenSSH's server changes its root to before it knows who is there.
const EMPTY: &str = "/run/sshd";
/// The fastest that both have; another one on either side would measure that.
pub(crate) const CIPHER: &str = "aes128-gcm@openssh.com";
const MIB: f64 = (HUGE_SIZE >> 20) as f64;

/// OpenSSH's server, if it is installed.
pub(crate) fn find() -> Option<&'static Path> {
    Some(Path::new(SSHD)).filter(|path| path.is_file())
}

pub(crate) fn run(table: &mut Table, sshd: &Path, fixture: &Fixture) {
    let client = Client::new(fixture);
    let ours = ours(&client, fixture);
    let openssh = Sshd::start(sshd, &client, fixture);
    let there = fixture.root().join(HUGE);
    let (back, put) = (fixture.beside("back.bin"), fixture.root().join("put.bin"));
    let get = format!("get {} {}\n", there.display(), back.display());
    let get = |port| {
        let speed = client.transfer(port, &get);
        assert_eq!(fs::metadata(&back).unwrap().len(), HUGE_SIZE as u64);
        speed
    };
    let pair = Pair::of(|| get(ours.port), || get(openssh.port));
    table.compare("OpenSSH's sftp, get 1 GiB", "MiB/s", Bar::AtLeast(1.2), &pair);
    let batch = format!("put {} {}\n", back.display(), put.display());
    let put = |port| {
        // Both make a new file.
        let _ = fs::remove_file(&put);
        let speed = client.transfer(port, &batch);
        assert_eq!(fs::metadata(&put).unwrap().len(), HUGE_SIZE as u64);
        speed
    };
    let pair = Pair::of(|| put(ours.port), || put(openssh.port));
    table.compare("OpenSSH's sftp, put 1 GiB", "MiB/s", Bar::AtLeast(1.2), &pair);
}

/// Our daemon, with a port for plain SSH.
struct Ours {
    _daemon: Daemon,
    port: u16,
}

fn ours(client: &Client, fixture: &Fixture) -> Ours {
    let port = free_port();
    let mut command = our_daemon(&fixture.root(), fixture);
    command.args(["--conventional-ssh", "--ssh-port", &port.to_string()]);
    command.arg("--ssh-users").arg(format!("{}:unused", client.user));
    command.arg("--ssh-authorized-keys").arg(client.key.with_extension("pub"));
    Ours { _daemon: Daemon::start(command), port }
}

/// OpenSSH's server at a port of its own.
pub(crate) struct Sshd {
    _running: Running,
    pub(crate) port: u16,
}

impl Sshd {
    pub(crate) fn start(program: &Path, client: &Client, fixture: &Fixture) -> Sshd {
        let port = free_port();
        let host_key = fixture.beside("openssh_host_key");
        make_key(&host_key);
        // Its files transfer in the process of the connection, which is the faster way it has.
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
             StrictModes no\nUsePAM no\nSubsystem sftp internal-sftp\n",
            host_key.display(),
            client.key.with_extension("pub").display()
        );
        let path = fixture.beside("sshd_config");
        fs::write(&path, config).unwrap();
        fs::create_dir_all(EMPTY).unwrap();
        let mut command = Command::new(program);
        command.args(["-D", "-f"]).arg(path);
        let running =
            Running::when(&mut command, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Sshd { _running: running, port }
    }
}

/// Who logs in to both.
pub(crate) struct Client {
    user: String,
    key: PathBuf,
}

impl Client {
    pub(crate) fn new(fixture: &Fixture) -> Client {
        let key = fixture.beside("client_key");
        make_key(&key);
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        Client { user: String::from_utf8(user).unwrap().trim().to_owned(), key }
    }

    /// Runs one batch with the one cipher: MiB a second.
    fn transfer(&self, port: u16, batch: &str) -> f64 {
        self.transfer_with(port, Some(CIPHER), batch)
    }

    /// Runs one batch, connection included: MiB a second.
    pub(crate) fn transfer_with(&self, port: u16, cipher: Option<&str>, batch: &str) -> f64 {
        let file = self.key.with_extension("batch");
        fs::write(&file, batch).unwrap();
        let mut sftp = Command::new("sftp");
        sftp.args(["-F", "none", "-o", "UserKnownHostsFile=/dev/null"]);
        sftp.args(["-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"]);
        if let Some(cipher) = cipher {
            sftp.args(["-c", cipher]);
        }
        sftp.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(&self.key);
        sftp.args(["-P", &port.to_string(), "-b"]).arg(&file);
        sftp.arg(format!("{}@127.0.0.1", self.user)).stdout(Stdio::null());
        let begun = Instant::now();
        let status = sftp.status().unwrap();
        let time = begun.elapsed().as_secs_f64();
        assert!(status.success(), "{sftp:?} ended with {status}");
        MIB / time
    }
}

fn make_key(path: &Path) {
    if path.exists() {
        return;
    }
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    assert!(command.status().unwrap().success(), "{command:?}");
}
