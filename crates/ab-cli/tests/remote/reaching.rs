//! Reaching a workspace elsewhere, and being told why not.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::{Far, TOKEN, WAYS, Way, without_limits};
use crate::daemon::Daemon;
use crate::stage::{Stage, run};

#[test]
fn a_wrong_token_says_where_to_give_the_right_one() {
    let stage = Stage::new();
    let far = Far::start(&stage);
    let ran = stage.run(&["fs", "ls", "--remote", &far.socket]);
    ran.expect_error(3, "the daemon requires a token");
    assert!(ran.err.contains("--token-file"), "{}", ran.err);
    fs::write(stage.outside("token"), "wrong\n").unwrap();
    let ran = far.run(&stage, Way::Socket, &["exec", "--json", "--", "true"]);
    assert_eq!((ran.code, ran.error()["code"].clone()), (125, json!("AUTH_FAILED")));
    let mut command = stage.command(crate::stage::BINARY);
    command.args(["fs", "ls"]).env("AGENT_BACKEND_AUTH_TOKEN", TOKEN);
    command.env("AGENT_BACKEND_REMOTE", &far.socket);
    let ran = run(command, b"");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    fs::write(stage.outside("password"), "wrong\n").unwrap();
    let ran = far.run(&stage, Way::Ssh, &["fs", "ls"]);
    ran.expect_error(3, "refused the login of 'ada' with a password");
    assert!(ran.err.contains("--identity"), "{}", ran.err);
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_host_key_must_be_known_pinned_or_accepted() {
    let stage = Stage::with(&[("a.txt", "")]);
    let far = Far::start(&stage);
    let known = stage.outside("known");
    let (known, password) = (known.to_str().unwrap(), stage.outside("password"));
    let by = |more: &[&str]| {
        let mut command = stage.command(crate::stage::BINARY);
        command.args(["fs", "ls", "--remote", &far.ssh, "--password-file"]).arg(&password);
        command.env("HOME", stage.outside("here")).args(more);
        run(command, b"")
    };
    let ran = by(&[]);
    ran.expect_error(3, &far.fingerprint);
    assert!(ran.err.contains("here/.ssh/known_hosts: [127.0.0.1]:"), "{}", ran.err);
    assert!(ran.err.contains("--accept-new-host-key"), "{}", ran.err);
    // The line that it says to add is the right one.
    let line = ran.err.split("known_hosts: ").nth(1).unwrap().split(';').next().unwrap();
    fs::create_dir_all(stage.outside("here/.ssh")).unwrap();
    fs::write(stage.outside("here/.ssh/known_hosts"), format!("{line}\n")).unwrap();
    assert_eq!(by(&[]).text(), "a.txt\n");
    // One of its own counts instead.
    by(&["--known-hosts", known]).expect_error(3, "is not known");
    assert_eq!(by(&["--known-hosts", known, "--accept-new-host-key"]).code, 0);
    assert_eq!(by(&["--known-hosts", known]).code, 0);
    assert_eq!(by(&["--host-key", &far.fingerprint]).code, 0);
    let other = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";
    let ran = by(&["--host-key", other]);
    ran.expect_error(3, "is not the pinned one");
    assert!(!ran.err.contains("--accept-new"), "{}", ran.err);
    by(&["--host-key", "nonsense"]).expect_error(2, "must be SHA256:");
    // Another key at the same address.
    let own = fs::read_to_string(known).unwrap();
    let (place, _) = own.split_once(' ').unwrap();
    let another =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    fs::write(known, format!("{place} {another}\n")).unwrap();
    let shown = Command::new("ssh-keygen").args(["-l", "-f", known]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let recorded = shown.split(' ').nth(1).unwrap();
    let host = place.replace(['[', ']'], "");
    let remove = format!("ssh-keygen -R '{place}' -f '{known}'");
    let says = format!(
        "error: connect: the host key of {host} has changed: it is now {}, but line 1 of {known} \
         has {recorded}\nhint: this can be an attack; if the change is expected, remove the old key: \
         {remove}\n",
        far.fingerprint
    );
    for more in [&["--known-hosts", known][..], &["--known-hosts", known, "--accept-new-host-key"]]
    {
        let ran = by(more);
        assert_eq!((ran.code, ran.err.as_str()), (3, says.as_str()));
    }
    // The command that it prints removes the key.
    let mut removal = Command::new("sh");
    let removed = removal.args(["-c", &remove]).output().unwrap();
    assert!(removed.status.success(), "{removed:?}");
    assert!(!fs::read_to_string(known).unwrap().contains(another));
    let ran = by(&["--known-hosts", known, "--accept-new-host-key"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "a.txt\n"), "{}", ran.err);
    assert_eq!(fs::read_to_string(known).unwrap(), own);
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_key_opens_the_door() {
    let stage = Stage::with(&[("a.txt", "")]);
    let make = |name: &str, passphrase: &str| {
        let mut made = Command::new("ssh-keygen");
        made.args(["-q", "-t", "ed25519", "-N", passphrase, "-f"]).arg(stage.outside(name));
        assert!(made.status().unwrap().success());
        stage.outside(name).to_str().unwrap().to_owned()
    };
    let (key, other, locked) = (make("key", ""), make("other", ""), make("locked", "closed"));
    let public = fs::read_to_string(format!("{key}.pub")).unwrap();
    let far = Far::start_with(&stage, &["--ssh-public-key", &public]);
    let by = |identities: &[&str]| {
        let mut command = stage.command(crate::stage::BINARY);
        command.args(["fs", "ls", "--remote", &far.ssh, "--host-key", &far.fingerprint]);
        for identity in identities {
            command.args(["--identity", identity]);
        }
        run(command, b"")
    };
    assert_eq!(by(&[&key]).text(), "a.txt\n");
    assert_eq!(by(&[&other, &key]).text(), "a.txt\n");
    by(&[&other]).expect_error(3, "refused the login of 'ada' with the key SHA256:");
    by(&[]).expect_error(3, "accepts none of the credentials");
    by(&[&locked]).expect_error(2, "encrypted");
    by(&["no/such/key"]).expect_error(2, "cannot read the key no/such/key");
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn what_is_not_there_is_told_in_bounded_time() {
    let stage = Stage::new();
    let ran = stage.run(&["fs", "ls", "--remote", "ws://127.0.0.1:1/ssh"]);
    ran.expect_error(4, "cannot reach 127.0.0.1:1");
    assert!(
        ran.err
            .contains("check the host and port of --remote; on that machine: agent-backend daemon"),
        "{}",
        ran.err
    );
    let ran = stage.run(&["exec", "--remote", "ssh://ada@127.0.0.1:1", "--", "true"]);
    ran.expect_error(125, "cannot reach 127.0.0.1:1");
    let off = Daemon::start(&stage, &["--rootDir", ".", "--disable-ssh-ws"]);
    let ran = stage.run(&["fs", "ls", "--remote", &format!("ws://{}/ssh", off.address)]);
    ran.expect_error(4, "404");
    assert_eq!(off.end().0, 0);
}

#[test]
fn nonsense_is_a_matter_of_the_command_line() {
    let stage = Stage::new();
    let socket = "ws://127.0.0.1:1/ssh";
    for (words, says) in [
        (&["fs", "ls", "--remote", "nonsense"][..], "invalid URL: the scheme is missing"),
        (&["fs", "ls", "--remote", ""], "URL"),
        (&["fs", "ls", "--remote", "ftp://h/"], "ftp"),
        (&["fs", "ls", "--remote", "ssh://h/"], "the user name for h:22 is missing"),
        (&["fs", "ls", "--remote", "ssh://a:b@h/"], "must not contain a password"),
        (&["fs", "ls", "--remote", "ws://a@h/"], "must not contain a user name"),
        (&["fs", "ls", "--proxy", "http://p:1"], "--proxy needs --remote"),
        (&["fs", "ls", "--identity", "k"], "--identity needs --remote"),
        (&["fs", "ls", "--remote", socket, "--identity", "k"], "--identity is for ssh://"),
        (
            &["fs", "ls", "--remote", socket, "--password-file", "k"],
            "--password-file is for ssh://",
        ),
        (&["fs", "ls", "--remote", "ssh://a@h", "--token-file", "k"], "--token-file is for ws://"),
        (
            &["fs", "ls", "--remote", "ssh://a@h", "--proxy", "http://p:1"],
            "a proxy can only be set for",
        ),
        (&["fs", "ls", "--remote", socket, "--root", ""], "a value is required for '--root"),
        (
            &["exec", "--remote", socket, "--isolation", "none", "--", "x"],
            "--isolation cannot be used with",
        ),
        (
            &["exec", "--remote", socket, "--network", "none", "--", "x"],
            "--network cannot be used with",
        ),
        (
            &["exec", "--remote", socket, "--profile", "off", "--", "x"],
            "--profile cannot be used with",
        ),
        (&["mcp", "--remote", socket, "--shell", "sh"], "--shell cannot be used with"),
        (&["doctor", "--token-file", "k"], "--token-file needs --remote"),
    ] {
        let code = if words[0] == "exec" { 125 } else { 2 };
        stage.run(words).expect_error(code, says);
    }
}

#[test]
fn a_proxy_is_gone_through_or_told() {
    let stage = Stage::new();
    let far = Far::start(&stage);
    let ran = far.run(&stage, Way::Socket, &["fs", "ls", "--proxy", "http://127.0.0.1:1"]);
    ran.expect_error(4, "127.0.0.1:1");
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn doctor_says_what_is_there() {
    let stage = Stage::new();
    let far = Far::start(&stage);
    for way in WAYS {
        let value = far.run(&stage, way, &["doctor", "--json"]).value();
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        let expect = ["url", "kind", "server", "root", "round_trip_us", "capabilities", "in_force"];
        assert_eq!(keys, expect);
        assert_eq!((&value["kind"], &value["server"]), (&json!("remote"), &json!("agent-backend")));
        assert!(value["round_trip_us"].as_u64().unwrap() > 0);
        assert_eq!(value["capabilities"]["exec"], true);
        let here = stage.json(&["exec", "--explain", "--json"]);
        assert_eq!(without_limits(value["in_force"].clone()), without_limits(here));
        let text = far.out(&stage, way, &["doctor"]);
        assert!(text.contains("is an agent-backend daemon\n"), "{text}");
        assert!(text.contains("round trip  ") && text.contains("yes  exec\n"), "{text}");
    }
    let ran = stage.run(&["doctor", "--remote", "ws://127.0.0.1:1/ssh"]);
    ran.expect_error(4, "cannot reach");
    assert_eq!(far.daemon.end().0, 0);
}
