//! The metrics of a server, read by the parser of Prometheus' Python library.

use std::fs;

use ab_testkit::peers::ThirdPartyPrograms;

use super::{script, succeeds};
use crate::outliving::comes;
use crate::serve::{Server, client, repository, waiting};

#[test]
fn prometheus_client_reads_the_metrics() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the parser of Prometheus") else {
        return;
    };
    let stage = repository();
    let server = Server::start(&stage);
    let done = client(&stage, &["task", "Note it", "--follow", "--approve", "always"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let token = fs::read_to_string(stage.outside("data").join("token")).unwrap();
    let read_with = |arguments: &[&str]| {
        let mut command = peers.python_command(&script("metrics.py"));
        command.arg(format!("{}/metrics", server.url())).arg(token.trim()).args(arguments);
        succeeds(command)
    };
    let read = || read_with(&[]);
    let idle = "1 completed, 0 cancelled, 0 running, 0 prompts queued, 0 approvals pending\n";
    comes("the end of the session in the metrics", || read() == idle);
    let id = waiting(&stage);
    let asks = client(&stage, &["session", "prompt", &id, "And then"]);
    assert_eq!(asks.code, 0, "{}", asks.err);
    let busy = "1 completed, 0 cancelled, 1 running, 1 prompts queued, 1 approvals pending\n";
    assert_eq!(read(), busy);
    // This counts what is on the disk, without a wait for the housekeeper.
    let counted = client(&stage, &["cleanup"]);
    assert_eq!(counted.code, 0, "{}", counted.err);
    assert_eq!(read_with(&["disk"]), busy);
    let cancelled = client(&stage, &["session", "cancel", &id]);
    assert_eq!(cancelled.code, 0, "{}", cancelled.err);
    let both = "1 completed, 1 cancelled, 0 running, 0 prompts queued, 0 approvals pending\n";
    comes("the end of the other session", || read() == both);
    assert_eq!(server.end().0, 0);
}
