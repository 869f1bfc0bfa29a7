//! Somebody tries tokens on a daemon: it is slowed down, and whoever reads the log knows.

use std::process::Command;

use crate::daemon::Daemon;
use crate::stage::{BINARY, Stage, run};

const TOKEN: &str = "t0ken";

#[test]
fn guesses_are_limited_and_told_of() {
    let stage = Stage::new();
    let daemon = Daemon::start(&stage, &["--rootDir", ".", "--auth-token", TOKEN]);
    let ask = |token: &str| {
        let shown = format!("Bearer {token}");
        daemon.ask("GET", "/mcp", &[("authorization", &shown)], "").0
    };
    // At a time, so that those that wait do so together.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = &ask;
        let guess = |number| scope.spawn(move || ask(&format!("guess-{number}")));
        let guesses: Vec<_> = (0..24).map(guess).collect();
        guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
    });
    let times = |status| statuses.iter().filter(|&&each| each == status).count();
    assert_eq!((times(401), times(429)), (20, 4), "{statuses:?}");
    // The right one is known all the same: it gets as far as the route.
    assert_eq!(ask(TOKEN), 405);
    let (code, said) = daemon.end();
    assert_eq!(code, 0);
    let told: Vec<&str> = said.lines().filter(|line| line.contains(" a wrong token ")).collect();
    assert_eq!(told.len(), 5, "{said}");
    // Those that come at a time may be written in any order.
    for count in [1, 2, 4, 8, 16] {
        let expect = format!(" WARN a wrong token peer=127.0.0.1 failures={count}");
        assert!(told.iter().any(|line| line.ends_with(&expect)), "{count}: {said}");
    }
    assert!(!said.contains("guess-") && !said.contains(TOKEN), "{said}");
}

#[test]
fn a_websocket_that_is_sent_away_is_told_of() {
    let stage = Stage::new();
    let daemon = Daemon::start(&stage, &["--rootDir", ".", "--auth-token", TOKEN]);
    for token in ["wrong-one", "wrong-two"] {
        let mut command: Command = stage.command(BINARY);
        command.args(["ssh-proxy", &format!("ws://{}/ssh", daemon.address)]);
        command.env("AGENT_BACKEND_AUTH_TOKEN", token);
        run(command, b"").expect_error(3, "the daemon refused the token");
    }
    let (_, said) = daemon.end();
    let requests: Vec<&str> = said.lines().filter(|line| line.contains("path=\"/ssh\"")).collect();
    assert_eq!(requests.len(), 2, "{said}");
    for line in requests {
        assert!(
            line.contains(" WARN request ") && line.contains("status=101 closed=4001"),
            "{line}"
        );
        assert!(line.ends_with(" peer=127.0.0.1"), "{line}");
    }
    assert!(said.contains("WARN a wrong token peer=127.0.0.1 failures=1"), "{said}");
    assert!(!said.contains("wrong-"), "{said}");
}
