//! 1,000 `createFile` operations in one run of a stored space, beside 1,000 direct writes through the same backend.
//!
//! Both take turns inside a round; what counts is the median of the ratios of the rounds. `cargo xtask bench spaces`
//! runs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends at the first thing that is not as it must be"
)]

use std::time::Instant;

use ab_core::{Principal, PrincipalKind};
use ab_local::LocalWorkspaceConfig;
use ab_spaces::{SpaceRequest, Spaces, SpacesSettings, parse_operations_message};
use ab_store::{DataDir, Store};
use serde_json::{Value, json};

const ROUNDS: usize = 9;
const FILES: usize = 1000;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(measure());
}

async fn measure() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path().join("data")).unwrap();
    let template = LocalWorkspaceConfig::new(directory.path());
    let settings = SpacesSettings::new(data.path().join("spaces"), template);
    let spaces = Spaces::start(Store::open(data).await.unwrap(), settings).await.unwrap();
    let request = SpaceRequest::parse(br#"{"policy":"permissive"}"#).unwrap();
    let space = spaces.create_space(request, None).await.unwrap().id;
    let backend = spaces.space_workspace(space).await.unwrap().backend().clone();
    let who = Principal::new(PrincipalKind::Person, "bench");
    let mut ratios = Vec::new();
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let start = Instant::now();
        for file in 0..FILES {
            backend.write(format!("direct{round}/{file}").as_str(), "content").await.unwrap();
        }
        let written = start.elapsed();
        let operations: Vec<Value> = (0..FILES)
            .map(|file| {
                let path = format!("run{round}/{file}");
                json!({ "type": "createFile", "path": path, "content": "content" })
            })
            .collect();
        let message = json!({ "protocolVersion": "1.0", "operations": operations });
        let start = Instant::now();
        let message = parse_operations_message(&message).unwrap();
        let run = spaces.create_run(space, message, &who, None).await.unwrap().id;
        let answer = spaces.wait_for_run_events(run, 0).await.unwrap();
        let ran = start.elapsed();
        assert!(answer.events.iter().all(|event| event.success() == Some(true)));
        assert_eq!(answer.events.len(), FILES);
        ratios.push(written.as_secs_f64() / ran.as_secs_f64());
        ours.push(ran.as_secs_f64() * 1e3);
        direct.push(written.as_secs_f64() * 1e3);
    }
    println!("bench spaces: median of {ROUNDS} rounds; times are milliseconds\n");
    println!("{:<44} {:>9} {:>9} {:>8}  bar", "", "run", "direct", "ratio");
    let name = "1,000 createFile in one run; direct writes";
    let (ours, direct, ratio) = (median(ours), median(direct), median(ratios));
    println!("{name:<44} {ours:>9.1} {direct:>9.1} {ratio:>8.2}  at least 0.4");
    spaces.shutdown().await;
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
