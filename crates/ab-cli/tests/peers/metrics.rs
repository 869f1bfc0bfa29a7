//! The metrics of a server, read by the parser of Prometheus' Python library.

use std::fs;

use ab_testkit::peers::ThirdPartyPrograms;

use super::{script, succeeds};
use crate::outliving::comes;
use crate::serve::{Server, client, repository};

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
    let read = || {
        let mut command = peers.python_command(&script("metrics.py"));
        command.arg(format!("{}/metrics", server.url())).arg(token.trim());
        succeeds(command)
    };
    comes("the end of the session in the metrics", || read() == "1 completed\n");
    assert_eq!(server.end().0, 0);
}
