//! Schemathesis: requests made from our OpenAPI description, against the built server.

use std::path::Path;

use ab_testkit::peers::ThirdPartyPrograms;

use super::succeeds;
use crate::surviving::fixture::Fixture;

/// What every response is checked for: no 500, and nothing that the description does not have.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

/// Streams do not end, an installation asks npm, the page has no JSON, and schemathesis makes no tar archives.
const LEFT_OUT: &str = "(/ssh|/mcp|/events|/stream|/install|/upload-batch|^/ui.*)$";

/// Requests for each operation, and a seed that a failed run can be repeated with.
const EXAMPLES: &str = "20";

#[test]
fn slow_schemathesis_finds_no_500_and_no_undocumented_response() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("schemathesis") else { return };
    let fixture = Fixture::new();
    let server = fixture.start(&["--root", fixture.stage.root().to_str().unwrap()]);
    let examples =
        std::env::var("AB_SCHEMATHESIS_EXAMPLES").unwrap_or_else(|_| EXAMPLES.to_owned());
    let seed = std::env::var("AB_SCHEMATHESIS_SEED").unwrap_or_else(|_| "1".to_owned());
    let mut command = peers.python_command(Path::new("-m"));
    command.args(["schemathesis.cli", "run"]);
    command.arg(format!("http://{}/api/v1/openapi.json", server.address));
    command.args(["--header", &format!("Authorization: Bearer {}", server.token)]);
    command.args(["--checks", CHECKS, "--exclude-path-regex", LEFT_OUT]);
    command.args(["--phases", "examples,coverage,fuzzing", "--max-examples", &examples]);
    command.args(["--seed", &seed, "--request-timeout", "30", "--no-color"]);
    // It keeps what it found in its working directory.
    command.current_dir(fixture.stage.outside("."));
    let said = succeeds(command);
    // Without an operation that it could test it would also succeed.
    assert!(said.contains(" passed") && !said.contains("Tested: 0"), "{said}");
    let answer = server.ask("GET", "/api/v1/sessions", "");
    assert_eq!(answer.status, 200, "{answer:?}");
    server.end();
}
