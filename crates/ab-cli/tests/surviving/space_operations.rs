//! Lists of operations on the built binary: in a space over HTTP and in a directory on the command line, with the same
//! events as in the process of a library.

use std::fs;

use ab_testkit::operations::{OperationsCase, without_times};
use serde_json::{Value, json};

use super::spaces::{fixture, post, space};

/// The events of the records with this name in an event stream.
fn events_of_stream(stream: &str) -> Vec<Value> {
    let records = stream.split("\n\n").filter(|record| record.starts_with("event: event\n"));
    let data = records.map(|record| record.lines().find_map(|line| line.strip_prefix("data: ")));
    data.map(|data| serde_json::from_str(data.unwrap()).unwrap()).collect()
}

fn list(events: &Value) -> Vec<Value> {
    events.as_array().unwrap_or_else(|| panic!("{events:#}")).clone()
}

#[test]
fn operations_have_the_same_events_over_http_and_on_the_command_line() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let no_network = json!({ "network": { "enabled": false } });
    let body = json!({ "policy": "permissive", "policyOverrides": no_network });
    for case in OperationsCase::ALL {
        let id = space(&server, &body);
        (case.plant)(&fixture.data().join("spaces").join(&id).join("files"));
        let message = case.message().to_string();
        let (status, answer) = post(&server, &format!("/v1/spaces/{id}/runs"), &message);
        assert_eq!((status, &answer["data"]["status"]), (201, &json!("completed")), "{answer:#}");
        let events = list(&answer["data"]["events"]);
        (case.check)(&events);
        let run = format!("/v1/runs/{}", answer["data"]["runId"].as_str().unwrap());
        let shown = server.get(&run);
        assert_eq!(shown["data"]["events"], answer["data"]["events"], "{}", case.name);
        let stream = server.ask("GET", &format!("{run}/stream"), "").body;
        assert_eq!(events_of_stream(&stream), events, "{}", case.name);

        let root = fixture.stage.outside(case.name);
        fs::create_dir(&root).unwrap();
        (case.plant)(&root);
        let policy = fixture.stage.outside("policy.json");
        let space = server.get(&format!("/v1/spaces/{id}"));
        fs::write(&policy, space["data"]["policy"].to_string()).unwrap();
        let [root, policy] = [&root, &policy].map(|path| path.to_str().unwrap());
        let arguments = ["run", "-", "--root", root, "--policy", policy, "--json"];
        let ran = fixture.stage.run_with(&arguments, message.as_bytes());
        let told: Value = serde_json::from_slice(&ran.out)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", case.name, ran.err));
        let here = list(&told["events"]);
        (case.check)(&here);
        let fails = here.iter().any(|event| event["success"] == false);
        assert_eq!(ran.code, i32::from(fails), "{}: {}", case.name, ran.err);
        let both = here.iter().zip(&events);
        for (here, there) in both {
            assert_eq!(without_times(here), without_times(there), "{}", case.name);
        }
        assert_eq!(here.len(), events.len(), "{}", case.name);
    }
    server.end();
}
