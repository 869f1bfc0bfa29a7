//! The directory of `serve --root`: its commands have the isolation, the network and the rules of sessions.

use std::fs;

use super::approvals::exec_at;
use super::fixture::{Fixture, Server};
use crate::escapes::stands;

/// Refuses a command that the built-in rules allow.
const RULES: &str = "[[rule]]\nid = \"own.touch\"\ncategory = \"destructive\"\nverdict = \"deny\"\n\
     command = [\"touch\"]\nreason = \"it makes a file\"\n";

/// Whether a command at `/mcp` shares the network of the server, whose port listens there.
fn sees_the_servers_port(server: &Server) -> bool {
    let port: u16 = server.address().rsplit(':').next().unwrap().parse().unwrap();
    let listening = format!(":{port:04X} 00000000:0000 0A ");
    let sockets = exec_at(server, "/mcp", "cat /proc/net/tcp");
    let text = sockets["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("local_address"), "{text}");
    text.contains(&listening)
}

#[test]
fn commands_of_the_served_directory_have_the_network_of_sessions() {
    if !stands("bwrap") {
        return;
    }
    let fixture = Fixture::new();
    let root = fixture.stage.outside("served");
    fs::create_dir(&root).unwrap();
    let root = root.to_str().unwrap();
    // The first server makes the token that the others take, if they take one.
    for (flags, shares) in [
        (&["--root", root][..], true),
        (&["--root", root, "--network", "none"], false),
        (&["--root", root, "--no-auth"], false),
    ] {
        let server = fixture.start(flags);
        assert_eq!(sees_the_servers_port(&server), shares, "{flags:?}");
        server.end();
    }
}

#[test]
fn commands_of_the_served_directory_have_the_rules_and_the_isolation_of_sessions() {
    if !stands("landlock") {
        return;
    }
    let fixture = Fixture::new();
    let (root, rules) = (fixture.stage.outside("served"), fixture.stage.outside("rules.toml"));
    fs::create_dir(&root).unwrap();
    fs::write(&rules, RULES).unwrap();
    let (root, rules) = (root.to_str().unwrap(), rules.to_str().unwrap());
    let flags = ["--root", root, "--rules", rules, "--isolation", "landlock"];
    let server = fixture.start(&flags);
    let refused = exec_at(&server, "/mcp", "touch made");
    assert_eq!(refused["isError"], true, "{refused:#}");
    assert!(refused.to_string().contains("own.touch"), "{refused:#}");
    // Under bwrap the first process of the namespace is a process of the sandbox.
    let sees_host = exec_at(&server, "/mcp", "cat /proc/1/comm; readlink /proc/self/ns/pid");
    let own = fs::read_link("/proc/self/ns/pid").unwrap();
    assert!(sees_host.to_string().contains(own.to_str().unwrap()), "{sees_host:#}");
    server.end();
}
