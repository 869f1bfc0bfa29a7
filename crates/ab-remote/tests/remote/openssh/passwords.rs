//! Passwords, as Debian's server checks them: by PAM, asked for in either way.
//!
//! The users of the machine are left alone: the server sees a file of passwords of its own, which
//! `bwrap` puts where it looks. Only root may read such a file, and so only root runs this.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use ab_core::{Backend, ErrorCode, ErrorKind};
use ab_remote::client::{Credential, RemoteClientSettings, RemoteDriver, RemoteEndpoint};
use ab_testkit::host::report_skip;
use ab_testkit::sshd::{SSHD, Sshd};

use crate::remote::sshd;
use crate::stage::{has, within};

const PASSWORD: &str = "correct horse";
const SHADOW: &str = "/etc/shadow";

/// Settings of a server that asks for a password by one way alone.
fn asking(by_question: bool) -> String {
    let (password, question) = if by_question { ("no", "yes") } else { ("yes", "no") };
    format!(
        "UsePAM yes\nPubkeyAuthentication no\nPasswordAuthentication {password}\n\
         KbdInteractiveAuthentication {question}\n"
    )
}

fn with_password(sshd: &Sshd, password: &str) -> RemoteClientSettings {
    let mut settings = sshd::settings(sshd);
    let RemoteEndpoint::Ssh(ssh) = &mut settings.endpoint else { panic!("not by SSH") };
    ssh.credentials = vec![Credential::Password(password.into())];
    settings
}

async fn check(by_question: bool) {
    let (needs, root) = ("a password of a user's", Command::new("id").arg("-u").output().unwrap());
    if root.stdout != b"0\n" || !has("bwrap") || !has("openssl") {
        return report_skip(needs, "it takes root, bwrap and openssl");
    }
    if !Path::new("/etc/pam.d/sshd").is_file() {
        return report_skip(needs, "there is no PAM for it");
    }
    let directory = tempfile::tempdir().unwrap();
    let shadow = directory.path().join("shadow");
    let hash = Command::new("openssl").args(["passwd", "-6", PASSWORD]).output().unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap();
    fs::write(&shadow, format!("root:{}:19000:0:99999:7:::\n", hash.trim())).unwrap();
    fs::set_permissions(&shadow, fs::Permissions::from_mode(0o600)).unwrap();
    let walls = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", shadow.to_str().unwrap(), SHADOW];
    let tried = Command::new(walls[0]).args(&walls[1..]).arg("true").output().unwrap();
    if !tried.status.success() {
        return report_skip(needs, &String::from_utf8_lossy(&tried.stderr));
    }
    let program = [&walls[..], &[SSHD]].concat();
    let Some(sshd) = Sshd::with(&asking(by_question), &program).await else { return };
    let backend = Backend::new(RemoteDriver::new(with_password(&sshd, PASSWORD)).unwrap());
    within(backend.connect()).await.unwrap();
    backend.write("file", "x").await.unwrap();
    assert_eq!(within(backend.exec("cat file")).await.unwrap().stdout.display_text(), "x");
    let stranger = Backend::new(RemoteDriver::new(with_password(&sshd, "a secret")).unwrap());
    let refused = within(stranger.connect()).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.kind()),
        (ErrorCode::AuthFailed, ErrorKind::DeniedByPolicy),
        "{refused}"
    );
    let by = if by_question { "when asked for it" } else { "with a password" };
    assert!(refused.message().contains(by) && !refused.message().contains("secret"), "{refused}");
}

#[tokio::test]
async fn are_taken_as_they_are() {
    check(false).await;
}

#[tokio::test]
async fn are_answers_to_a_question() {
    check(true).await;
}
