//! Commands on servers that are slow to run them, run none, or go away meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use ab_core::process::{ExecRequest, ProcessId};
use ab_core::{Backend, Error, ErrorCode, ErrorKind, LostCallEffect};
use ab_remote::client::RemoteClientSettings;
use ab_testkit::host::report_skip;
use ab_testkit::sshd::{SSHD, Sshd};
use tempfile::TempDir;

use crate::remote::sshd;
use crate::remote::world::connected;
use crate::stage::within;

/// Serves files where files are asked for.
const FILES: &str = "/usr/lib/openssh/sftp-server";
/// How often something that shows only on the disk is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// A server whose commands wait at a gate.
struct Gated {
    sshd: Sshd,
    directory: TempDir,
}

impl Gated {
    async fn start() -> Option<Self> {
        if !Path::new(FILES).is_file() {
            report_skip("OpenSSH's server for files", "it is not where Debian has it");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (script, at) = (directory.path().join("script"), directory.path().display());
        let text = format!(
            "#!/bin/sh\n[ \"$SSH_ORIGINAL_COMMAND\" = internal-sftp ] && exec {FILES}\n\
             echo >>{at}/asked\nwhile [ -e {at}/gate ]; do sleep 0.05; done\n\
             exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n"
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = format!("ForceCommand {}\n", script.display());
        let sshd = Sshd::with(&settings, &[SSHD]).await?;
        Some(Self { sshd, directory })
    }

    fn gate(&self) -> PathBuf {
        self.directory.path().join("gate")
    }

    fn shut(&self) {
        fs::write(self.gate(), "").unwrap();
    }

    fn open(&self) {
        fs::remove_file(self.gate()).unwrap();
    }

    /// How many commands the server was asked for, our own questions among them.
    fn asked(&self) -> usize {
        let asked = fs::read(self.directory.path().join("asked"));
        asked.map_or(0, |lines| lines.len())
    }

    /// Waits until it was asked for so many.
    async fn was_asked(&self, count: usize) {
        within(async {
            while self.asked() < count {
                tokio::time::sleep(LOOK).await;
            }
        })
        .await;
    }

    /// How a command fails whose connection is lost once the server was asked for so many.
    async fn cut_when_asked(&self, backend: &Backend, count: usize) -> Error {
        let cutting = async {
            self.was_asked(count).await;
            self.sshd.cut();
        };
        let (ran, ()) = within(async { tokio::join!(backend.exec("touch made"), cutting) }).await;
        ran.unwrap_err()
    }
}

fn is_lost(error: &Error, effect: LostCallEffect) {
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
    );
    // Nobody can be asked for more.
    assert_eq!((error.lost_call_effect(), error.lost_call_id()), (Some(effect), None), "{error:?}");
}

#[tokio::test]
async fn files_do_not_wait_for_commands() {
    let Some(gated) = Gated::start().await else { return };
    gated.shut();
    let backend = sshd::backend(&gated.sshd).await;
    backend.write("before", "x").await.unwrap();
    assert_eq!(gated.asked(), 0, "it was asked before anybody wanted to know");
    let mut running = pin!(backend.exec("echo ran"));
    let files = within(async {
        gated.was_asked(1).await;
        backend.write("file", "x").await.unwrap();
        assert_eq!(backend.read("file").await.unwrap(), "x");
    });
    tokio::select! {
        biased;
        ran = &mut running => panic!("through a shut gate: {ran:?}"),
        () = files => {}
    }
    gated.open();
    assert_eq!(within(running).await.unwrap().stdout.display_text(), "ran\n");
}

#[tokio::test]
async fn one_question_is_enough_for_all() {
    let Some(gated) = Gated::start().await else { return };
    let backend = sshd::backend(&gated.sshd).await;
    let (one, two) = tokio::join!(backend.exec("true"), backend.exec("true"));
    assert!(one.unwrap().exit.success() && two.unwrap().exit.success());
    assert_eq!(gated.asked(), 3);
}

#[tokio::test]
async fn what_was_no_answer_is_asked_again() {
    let Some(gated) = Gated::start().await else { return };
    gated.shut();
    let settings = RemoteClientSettings {
        operation_timeout: Duration::from_secs(1),
        ..sshd::settings(&gated.sshd)
    };
    let backend = connected(settings).await;
    let late = backend.exec("true").await.unwrap_err();
    assert_eq!((late.code(), late.kind()), (ErrorCode::Timeout, ErrorKind::Timeout), "{late}");
    assert_eq!(late.lost_call_effect(), Some(LostCallEffect::NotApplied), "{late:?}");
    assert!(backend.info().capabilities.exec, "it never said no");
    gated.open();
    // A busy machine may need more than one.
    within(async {
        while let Err(late) = backend.exec("true").await {
            assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_question_that_is_cut_is_asked_again() {
    let Some(gated) = Gated::start().await else { return };
    gated.shut();
    let backend = sshd::backend(&gated.sshd).await;
    is_lost(&gated.cut_when_asked(&backend, 1).await, LostCallEffect::NotApplied);
    gated.open();
    assert!(within(backend.exec("true")).await.unwrap().exit.success());
    assert!(!backend.exists("made").await.unwrap());
}

#[tokio::test]
async fn a_connection_that_is_lost_as_a_command_starts() {
    let Some(gated) = Gated::start().await else { return };
    let backend = sshd::backend(&gated.sshd).await;
    backend.exec("true").await.unwrap();
    gated.shut();
    let next = gated.asked() + 1;
    is_lost(&gated.cut_when_asked(&backend, next).await, LostCallEffect::Unknown);
    gated.open();
    assert!(within(backend.exec("true")).await.unwrap().exit.success());
}

#[tokio::test]
async fn a_connection_that_is_lost_while_a_command_runs() {
    let Some(gated) = Gated::start().await else { return };
    let backend = sshd::backend(&gated.sshd).await;
    // It goes on over there until the directory is gone.
    let at = gated.directory.path().display();
    let line = format!("echo >>{at}/asked; while [ -d {at} ]; do sleep 0.1; done");
    let cutting = async {
        // Our question, the command, and what it says itself.
        gated.was_asked(3).await;
        gated.sshd.cut();
    };
    let (ran, ()) = within(async { tokio::join!(backend.exec(&line), cutting) }).await;
    let error = ran.unwrap_err();
    is_lost(&error, LostCallEffect::Unknown);
    assert_eq!(error.command(), Some(line.as_str()));
    assert!(within(backend.exec("true")).await.unwrap().exit.success());
}

#[tokio::test]
async fn a_server_for_files_alone_runs_nothing() {
    let files_only = "ForceCommand internal-sftp\n";
    let Some(sshd) = Sshd::with(files_only, &[SSHD]).await else { return };
    let backend = sshd::backend(&sshd).await;
    backend.write("file", "x").await.unwrap();
    for _ in 0..2 {
        let refused = within(backend.exec("true")).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.kind()),
            (ErrorCode::NotImplemented, ErrorKind::Unsupported)
        );
        assert!(refused.message().contains("runs no commands"), "{refused}");
        assert!(!backend.info().capabilities.exec);
    }
    assert_eq!(backend.effective_policy().await.unwrap().isolation, None);
    assert_eq!(backend.read("file").await.unwrap(), "x");
}

#[tokio::test]
async fn nothing_can_be_kept() {
    let Some(sshd) = Sshd::start().await else { return };
    let backend = sshd::backend(&sshd).await;
    let request = ExecRequest::shell("touch made");
    for refused in [
        backend.spawn_detached(request).await.unwrap_err(),
        backend.detached_processes().await.unwrap_err(),
        backend.attach(&ProcessId::new("1"), 0).await.unwrap_err(),
    ] {
        assert_eq!(
            (refused.code(), refused.kind()),
            (ErrorCode::NotImplemented, ErrorKind::Unsupported)
        );
        let message = refused.message();
        assert!(message.contains("plain SSH server"), "{refused}");
        assert!(message.contains("background commands need an agent-backend daemon"), "{refused}");
        assert!(refused.hint().unwrap().contains("agent-backend daemon"), "{refused:?}");
    }
    assert!(!backend.exists("made").await.unwrap());
}
