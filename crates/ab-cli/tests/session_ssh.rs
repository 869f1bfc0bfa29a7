//! Stock ssh and sftp into a running session, through `ssh-proxy`.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::outliving::comes;
use crate::serve::{Server, client, repository};
use crate::stage::{BINARY, Ran, Stage, run};

/// The options that carry ssh or sftp to a session.
fn options(stage: &Stage, server: &Server, id: &str) -> Vec<String> {
    let url = server.url().replace("http://", "ws://");
    let token = stage.outside("data").join("token");
    let proxy = format!(
        "ProxyCommand={BINARY} ssh-proxy --token-file {} {url}/api/v1/sessions/{id}/ssh",
        token.display()
    );
    let fixed = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes"];
    let mut options = vec!["-F".to_owned(), "/dev/null".to_owned()];
    for option in fixed.iter().map(|option| (*option).to_owned()).chain([proxy]) {
        options.extend(["-o".to_owned(), option]);
    }
    options
}

fn ssh(stage: &Stage, server: &Server, id: &str, line: &str) -> Ran {
    let mut command = Command::new("ssh");
    command.args(options(stage, server, id)).args(["agent@session", line]);
    run(command, b"")
}

#[test]
fn stock_ssh_and_sftp_reach_a_running_session() {
    let stage = repository();
    let server = Server::start(&stage);
    let made = client(&stage, &["task", "Look", "--keep", "--json"]);
    let id = made.value()["sessionId"].as_str().unwrap().to_owned();
    comes("the session runs", || {
        client(&stage, &["session", "get", &id, "--json"]).value()["status"] == "running"
    });
    let read = ssh(&stage, &server, &id, "cat README.md");
    assert_eq!((read.code, read.text().as_ref()), (0, "# A project\n"), "{}", read.err);
    assert_eq!(ssh(&stage, &server, &id, "exit 7").code, 7);

    let batch = stage.outside("batch");
    let (sent, back) = (stage.outside("sent"), stage.outside("back"));
    fs::write(&sent, "by sftp\n").unwrap();
    let lines = format!("put {} new.txt\nget README.md {}\n", sent.display(), back.display());
    fs::write(&batch, lines).unwrap();
    let mut command = Command::new("sftp");
    command.args(options(&stage, &server, &id)).arg("-b").arg(&batch).arg("agent@session");
    let transferred = run(command, b"");
    assert_eq!(transferred.code, 0, "{}", transferred.err);
    assert_eq!(fs::read_to_string(&back).unwrap(), "# A project\n");
    let diff = client(&stage, &["session", "diff", &id]).text();
    assert!(diff.contains("+by sftp"), "{diff}");

    // Calls are stored by another task than the one that performs them.
    comes("the command in the audit, by its caller", || {
        let audit = client(&stage, &["session", "audit", &id, "--json"]).text();
        let entries = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let command =
            |it: &Value| it["subject"].as_str().unwrap_or_default().contains("cat README");
        let actors: Vec<Value> = entries.filter(command).map(|it| it["actor"].clone()).collect();
        assert!(actors.iter().all(|actor| actor == "api-key:admin"), "{actors:?}");
        !actors.is_empty()
    });

    // The directory of the server's token is not in the sandbox.
    let token = stage.outside("data").join("token");
    let hidden = ssh(&stage, &server, &id, &format!("cat {}", token.display()));
    assert_ne!(hidden.code, 0, "{}", hidden.text());
    assert_eq!(client(&stage, &["session", "cancel", &id]).code, 0);
    comes("the end", || {
        client(&stage, &["session", "get", &id, "--json"]).value()["status"] == "cancelled"
    });
    assert_ne!(ssh(&stage, &server, &id, "true").code, 0);
    assert_eq!(server.end().0, 0);
}
