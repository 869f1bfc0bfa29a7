//! What `server` takes from the variables of sandbox-agent, and its limits: lines, uploads, the time of its end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Gateway, START, add_program};
use crate::escapes::stands;
use crate::outliving::comes;
use crate::stage::{BINARY, Ran, Stage, run};

const MIB: usize = 1024 * 1024;

fn start_with_variable(stage: &Stage, name: &str, value: &str) -> Gateway {
    let mut command = stage.command(BINARY);
    command.env(name, value).env("XDG_STATE_HOME", stage.outside("state"));
    Gateway::start_by(command, stage, &[])
}

fn refused_with_variable(stage: &Stage, name: &str, value: &str) -> Ran {
    let mut command = stage.command(BINARY);
    command.args(["server", "--port", "0"]).env(name, value);
    run(command, b"")
}

#[test]
fn variable_of_sandbox_agent_forbids_installations() {
    let stage = Stage::new();
    for value in ["1", "true"] {
        let gateway = start_with_variable(&stage, "SANDBOX_AGENT_REQUIRE_PREINSTALL", value);
        let (status, problem) = gateway.ask("POST", "/v1/acp/a?agent=goose", START);
        assert_eq!(
            (status, &problem["type"]),
            (404, &"urn:sandbox-agent:error:agent_not_installed".into()),
            "{problem}"
        );
        assert_eq!(gateway.ask("GET", "/v1/acp", "").1["servers"].as_array().unwrap().len(), 0);
    }
    assert!(!stage.outside("state/agent-backend/agents/goose").exists());
    let refused = refused_with_variable(&stage, "SANDBOX_AGENT_REQUIRE_PREINSTALL", "perhaps");
    let says = "invalid SANDBOX_AGENT_REQUIRE_PREINSTALL \"perhaps\": must be 1 or 0";
    refused.expect_error(2, says);
}

#[test]
fn variable_of_sandbox_agent_sets_the_timeout_of_requests() {
    const NAME: &str = "SANDBOX_AGENT_ACP_REQUEST_TIMEOUT_MS";
    let stage = Stage::new();
    add_program(&stage, "agent_processes/quiet-acp", "#!/bin/sh\nread -r l; sleep 300\n");
    let gateway = start_with_variable(&stage, NAME, "300");
    let began = Instant::now();
    let (status, problem) = gateway.ask("POST", "/v1/acp/a?agent=quiet", START);
    assert_eq!(
        (status, &problem["type"]),
        (504, &"urn:sandbox-agent:error:timeout".into()),
        "{problem}"
    );
    // The default is two minutes.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    for value in ["0", "soon", "-1"] {
        let refused = refused_with_variable(&stage, NAME, value);
        refused.expect_error(2, &format!("invalid {NAME} {value:?}"));
    }
}

/// The agent never stops to send, so the timeout of silence does not apply.
#[test]
fn total_timeout_ends_a_request_to_an_agent_that_goes_on_talking() {
    let stage = Stage::new();
    let talking = "#!/bin/sh\nread -r l\n\
                   while echo '{\"method\":\"n\"}'; do sleep 0.05; done\n";
    add_program(&stage, "agent_processes/talking-acp", talking);
    let gateway = Gateway::start_with(&stage, &["--total-timeout", "500ms"]);
    let began = Instant::now();
    let (status, problem) = gateway.ask("POST", "/v1/acp/a?agent=talking", START);
    let took = began.elapsed();
    assert_eq!(
        (status, &problem["type"]),
        (504, &"urn:sandbox-agent:error:timeout".into()),
        "{problem}"
    );
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(60), "{took:?}");
    // The agent goes on.
    assert_eq!(gateway.ask("GET", "/v1/acp", "").1["servers"][0]["status"], "running");
    let refused = stage.run(&["server", "--port", "0", "--total-timeout", "soon"]);
    refused.expect_error(2, "--total-timeout");
}

/// The agent sends 200 events of 1,000 bytes, and 64 KiB of them are kept.
#[test]
fn replay_bytes_limit_what_a_client_that_reconnects_gets() {
    let stage = Stage::new();
    let event = format!("{{\"method\":\"n\",\"params\":\"{}\"}}", "x".repeat(974));
    assert_eq!(event.len(), 1000);
    let burst = format!(
        "#!/bin/sh\nread -r l; echo '{{\"id\":1,\"result\":1}}'; read -r l\n\
         yes '{event}' | head -n 200\necho '{{\"id\":1,\"result\":2}}'\n\
         while read -r l; do :; done\n"
    );
    add_program(&stage, "agent_processes/burst-acp", &burst);
    let gateway = Gateway::start_with(&stage, &["--replay-bytes", "64K"]);
    assert_eq!(gateway.ask("POST", "/v1/acp/a?agent=burst", START).1["result"], 1);
    assert_eq!(gateway.ask("POST", "/v1/acp/a", START).1["result"], 2);
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    let head =
        format!("GET /v1/acp/a HTTP/1.0\r\nhost: {}\r\nlast-event-id: 1\r\n\r\n", gateway.address);
    stream.write_all(head.as_bytes()).unwrap();
    let mut events = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(events.any(|line| line == "event: gap"));
    let gap: Value = serde_json::from_str(&events.next().unwrap()["data: ".len()..]).unwrap();
    // The last event, the response, has the id 202. Beside it, 65 events fit into 64 KiB.
    let oldest = gap["oldest"].as_u64().unwrap();
    assert_eq!(oldest, 202 - 65);
    let ids = events.filter_map(|line| line.strip_prefix("id:")?.trim().parse::<u64>().ok());
    assert!(ids.take(66).eq(oldest..=202));
}

/// An agent that ignores every signal but SIGKILL, with a child in another session that does too.
const STUBBORN: &str = "#!/bin/sh
trap '' TERM INT HUP
[ \"$1\" = child ] && while :; do sleep 1; done
setsid \"$0\" child &
read -r l
echo '{\"id\":1,\"result\":1}'
read -r l
echo '{\"method\":\"waiting\"}'
while :; do sleep 1; done
";

/// Processes whose command line contains a text. In a sandbox they have other ids than here.
fn processes_with(text: &str) -> usize {
    let processes = Path::new("/proc").read_dir().unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

/// In each of two servers a request waits and a client reads events. One is deleted, then the server gets SIGTERM.
#[test]
fn delete_and_sigterm_end_stubborn_agents_within_two_seconds() {
    for isolation in ["none", "bwrap"] {
        if isolation != "none" && !stands(isolation) {
            continue;
        }
        let stage = Stage::new();
        for agent in ["one", "two"] {
            add_program(&stage, &format!("agent_processes/{agent}-acp"), STUBBORN);
        }
        let mut gateway = Gateway::start_with(&stage, &["--isolation", isolation]);
        let programs = stage.outside("share/sandbox-agent/bin/agent_processes");
        let count = |agent: &str| {
            let launcher = programs.join(format!("{agent}-acp"));
            processes_with(launcher.to_str().unwrap())
        };
        let host = gateway.address.clone();
        let request = |head: &str, body: &str| {
            let mut stream = TcpStream::connect(&host).unwrap();
            let length = body.len();
            let head = format!(
                "{head} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        let begin = |agent: &str| {
            let path = format!("/v1/acp/{agent}?agent={agent}");
            let (status, started) = gateway.ask("POST", &path, START);
            assert_eq!(status, 200, "{isolation}: {started}");
            comes("the child", || count(agent) >= 2);
            let mut events = BufReader::new(request(&format!("GET /v1/acp/{agent}"), ""));
            let waits = r#"{"id":2,"method":"wait"}"#;
            let waiting = request(&format!("POST /v1/acp/{agent}"), waits);
            let mut line = String::new();
            while !line.contains("waiting") {
                line.clear();
                assert!(events.read_line(&mut line).unwrap() > 0, "it never got the request");
            }
            (events, waiting)
        };
        let readers = ["one", "two"].map(begin);

        let began = Instant::now();
        assert_eq!(gateway.ask("DELETE", "/v1/acp/two", "").0, 204);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(2), "{isolation}: {took:?}");
        comes("the end of the deleted agent", || count("two") == 0);
        assert!(count("one") >= 2, "{isolation}");

        let began = Instant::now();
        kill_process(Pid::from_child(&gateway.child), Signal::TERM).unwrap();
        let status = gateway.child.wait().unwrap();
        let took = began.elapsed();
        assert_eq!(status.code(), Some(0));
        assert!(took < Duration::from_secs(2), "{isolation}: {took:?}");
        comes("the end of the agents", || count("one") == 0);
        for (mut events, mut waiting) in readers {
            let mut answer = String::new();
            waiting.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 502"), "{isolation}: {answer:?}");
            let mut rest = String::new();
            events.read_to_string(&mut rest).unwrap();
        }
    }
}

/// Reads the events of server `a` until the one with the id `last`, and returns their ids.
fn read_events(reader: &mut impl BufRead, last: u64) -> Vec<u64> {
    let (mut ids, mut line) = (Vec::new(), String::new());
    while ids.last() != Some(&last) {
        line.clear();
        assert!(
            reader.read_line(&mut line).unwrap() > 0,
            "the stream ended after {:?}",
            ids.last()
        );
        assert!(!line.starts_with("event: gap"), "events are missing after {:?}", ids.last());
        if let Some(id) = line.strip_prefix("id:") {
            ids.push(id.trim().parse().unwrap());
        }
    }
    ids
}

/// The agent sends 20 MB, less than the bound of the replay buffer and more than all sockets on the way hold.
#[test]
fn reader_that_sleeps_loses_nothing_and_delays_nobody() {
    const LINES: u64 = 20_000;
    let stage = Stage::new();
    let burst = format!(
        "#!/bin/sh\nread -r l; echo '{{\"id\":1,\"result\":1}}'; read -r l\n\
         yes '{{\"method\":\"n\",\"params\":\"{}\"}}' | head -n {LINES}\n\
         echo '{{\"id\":1,\"result\":2}}'; while read -r l; do :; done\n",
        "x".repeat(1000)
    );
    add_program(&stage, "agent_processes/burst-acp", &burst);
    let short = "#!/bin/sh\nwhile read -r l; do echo '{\"id\":1,\"result\":1}'; done\n";
    add_program(&stage, "agent_processes/short-acp", short);
    let gateway = Gateway::start(&stage);
    assert_eq!(gateway.ask("POST", "/v1/acp/a?agent=burst", START).0, 200);
    let open = || {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        let head = format!("GET /v1/acp/a HTTP/1.0\r\nhost: {}\r\n\r\n", gateway.address);
        stream.write_all(head.as_bytes()).unwrap();
        BufReader::new(stream)
    };
    let mut sleeper = open();
    assert_eq!(read_events(&mut sleeper, 1), [1]);
    let (status, answer) = gateway.ask("POST", "/v1/acp/a", START);
    assert_eq!((status, &answer["result"]), (200, &2.into()), "{answer}");
    let expect: Vec<u64> = (1..=LINES + 2).collect();
    assert_eq!(read_events(&mut open(), LINES + 2), expect);
    assert_eq!(gateway.ask("POST", "/v1/acp/b?agent=short", START).0, 200);
    assert_eq!(read_events(&mut sleeper, LINES + 2), expect[1..]);
}

#[test]
fn agents_without_a_sandbox_get_the_variables_that_are_passed_on_and_no_other() {
    let stage = Stage::new();
    let says = "#!/bin/sh\nwhile read -r l; do \
                echo '{\"id\":1,\"result\":\"'${SECRET-none} ${HOME:+home}'\"}'; done\n";
    add_program(&stage, "agent_processes/says-acp", says);
    for (flags, expect) in [(&[][..], "none home"), (&["--pass-env", "SECRET"], "of-the-test home")]
    {
        let mut command = stage.command(BINARY);
        command.env("SECRET", "of-the-test");
        let gateway = Gateway::start_by(command, &stage, flags);
        let (status, answer) = gateway.ask("POST", "/v1/acp/a?agent=says", START);
        assert_eq!((status, answer["result"].as_str()), (200, Some(expect)), "{flags:?}: {answer}");
    }
    for (name, says) in [
        ("AGENT_BACKEND_AUTH_TOKEN", "is a variable of the server itself"),
        ("NOT_SET_ANYWHERE", "--pass-env NOT_SET_ANYWHERE"),
    ] {
        stage.run(&["server", "--port", "0", "--pass-env", name]).expect_error(2, says);
    }
}

/// The first reply has 30 MB and is forwarded; the second one has 100 MB, without an end.
#[test]
fn line_of_100_mb_ends_its_agent_and_no_other() {
    let stage = Stage::new();
    let long = "#!/bin/sh\nread -r l\nprintf '{\"id\":1,\"result\":\"'\n\
                head -c 30000000 /dev/zero | tr '\\0' x\nprintf '\"}\\n'\nread -r l\n\
                head -c 100000000 /dev/zero | tr '\\0' x\nsleep 300\n";
    add_program(&stage, "agent_processes/long-acp", long);
    let short = "#!/bin/sh\nwhile read -r l; do echo '{\"id\":1,\"result\":1}'; done\n";
    add_program(&stage, "agent_processes/short-acp", short);
    let gateway = Gateway::start(&stage);
    assert_eq!(gateway.ask("POST", "/v1/acp/b?agent=short", START).0, 200);
    let (status, reply) = gateway.ask("POST", "/v1/acp/a?agent=long", START);
    assert_eq!((status, reply["result"].as_str().map(str::len)), (200, Some(30_000_000)));
    let before = gateway.peak();
    let (status, problem) = gateway.ask("POST", "/v1/acp/a", START);
    assert_eq!(status, 502, "{problem}");
    let says = "more than 33554432 bytes";
    assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    let listed = gateway.ask("GET", "/v1/acp", "").1;
    assert_eq!(listed["servers"][0]["status"], "exited", "{listed}");
    let grown = gateway.peak() - before;
    assert!(grown < 96 * 1024, "{grown} KiB for a line that is not kept");
    assert_eq!(gateway.ask("POST", "/v1/acp/b", START).0, 200);
}

#[test]
fn message_above_the_limit_is_refused_and_not_forwarded() {
    let stage = Stage::new();
    let counting =
        "#!/bin/sh\nn=0\nwhile read -r l; do n=$((n+1)); echo '{\"id\":1,\"result\":'$n'}'; done\n";
    add_program(&stage, "agent_processes/counting-acp", counting);
    let gateway = Gateway::start(&stage);
    assert_eq!(gateway.ask("POST", "/v1/acp/a?agent=counting", START).1["result"], 1);
    let long = format!(r#"{{"id":2,"method":"{}"}}"#, "x".repeat(40 * MIB));
    let (status, problem) = gateway.ask("POST", "/v1/acp/a", &long);
    assert_eq!(
        (status, &problem["type"]),
        (413, &"urn:sandbox-agent:error:too_large".into()),
        "{problem}"
    );
    assert_eq!(gateway.ask("POST", "/v1/acp/a", START).1["result"], 2);
}

#[test]
fn max_upload_limits_files_and_archives() {
    let stage = Stage::new();
    let gateway = Gateway::start_with(&stage, &["--max-upload", "1M"]);
    let put = |length: usize| {
        let body = "x".repeat(length);
        gateway.ask("PUT", "/v1/fs/file?path=file", &body)
    };
    let (status, problem) = put(2 * MIB);
    assert_eq!(
        (status, &problem["type"]),
        (413, &"urn:sandbox-agent:error:too_large".into()),
        "{problem}"
    );
    assert!(problem["detail"].as_str().unwrap().contains("1048576 bytes"), "{problem}");
    assert_eq!(stage.names("."), [""; 0]);
    let (status, written) = put(MIB);
    assert_eq!((status, &written["bytesWritten"]), (200, &Value::from(MIB)));
    let refused = stage.run(&["server", "--port", "0", "--max-upload", "much"]);
    refused.expect_error(2, "--max-upload");
}

#[test]
fn upload_that_stops_leaves_nothing_when_the_server_ends() {
    let stage = Stage::new();
    let mut gateway = Gateway::start(&stage);
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    let host = &gateway.address;
    let head = format!(
        "PUT /v1/fs/file?path=half HTTP/1.1\r\nhost: {host}\r\ncontent-length: 9000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; 3 * MIB]).unwrap();
    // The upload has begun when its temporary file is there.
    while fs::read_dir(stage.root()).unwrap().count() == 0 {
        thread::yield_now();
    }
    kill_process(Pid::from_child(&gateway.child), Signal::TERM).unwrap();
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    assert_eq!(stage.names("."), [""; 0]);
}
