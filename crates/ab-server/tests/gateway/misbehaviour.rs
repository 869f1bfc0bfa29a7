//! Agents that crash, hang, flood and print garbage; readers that are slow.

use std::time::{Duration, Instant};

use ab_acp::gateway::ReplayLimits;
use ab_server::HttpAccessPolicy;
use serde_json::json;

use super::fixture::{Fixture, add};

const PING: &str = r#"{"id":1,"method":"ping"}"#;

#[tokio::test]
async fn exit_fails_what_waits_and_the_agent_can_be_started_again() {
    let fixture = Fixture::start().await;
    fixture.request("a?agent=echo", json!(0), "ping").await;
    let mut events = fixture.events("a", Some("2")).await;
    let hang = json!({ "id": 1, "method": "hang" });
    let exit = json!({ "method": "exit" });
    let (hung, ()) = tokio::join!(fixture.post("a", &hang), async {
        assert_eq!(events.next().await.unwrap().data["method"], "hanging");
        assert_eq!(fixture.post("a", &exit).await.status, 202);
    });
    let problem = hung.json();
    assert_eq!(
        (hung.status, &problem["type"]),
        (502, &"urn:sandbox-agent:error:agent_process_exited".into())
    );
    assert_eq!(problem["details"]["exitCode"], 3);
    assert!(problem["details"]["stderr"].as_str().unwrap().contains("last words"), "{problem}");
    // Readers of events learn how their request failed, and that the agent has gone.
    let event = events.next().await.unwrap().data;
    assert_eq!((&event["id"], &event["error"]["data"]["exitCode"]), (&json!(1), &json!(3)));
    let event = events.next().await.unwrap().data;
    assert_eq!(event["method"], "_adapter/agent_exited");
    assert_eq!(event["params"], json!({ "success": false, "code": 3 }));
    assert_eq!(fixture.servers().await, [("a".to_owned(), "exited".to_owned())]);
    let listed = fixture.ask("GET", "/v1/acp", "").await.json();
    assert_eq!(listed["servers"][0]["exitCode"], 3);
    // Without the agent's name it stays as it is; with it, it starts again, and the events go on.
    assert_eq!(fixture.post_text("a", PING).await.status, 502);
    fixture.request("a?agent=echo", json!(1), "ping").await;
    let event = events.next().await.unwrap();
    assert_eq!((event.data["method"].as_str(), event.id), (Some("seen"), Some(6)));
    assert_eq!(fixture.servers().await, [("a".to_owned(), "running".to_owned())]);
}

#[tokio::test]
async fn an_agent_that_dies_at_once_is_told_of() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        add(settings, "dies", "echo no key >&2; exit 4");
        add(settings, "killed", "kill -9 $$");
        add(settings, "deaf", "exec <&-; sleep 60");
        settings.request_timeout = Duration::from_secs(20);
    })
    .await;
    for (agent, says) in [("dies", "code 4"), ("killed", "signal 9")] {
        let got = fixture.post_text(&format!("{agent}?agent={agent}"), PING).await;
        assert_eq!(got.status, 502, "{got:?}");
        assert!(got.json()["detail"].as_str().unwrap().contains(says), "{got:?}");
    }
    // One that closed its input may still answer; a line that cannot be written is told of.
    let long = format!(r#"{{"method":"{}"}}"#, "x".repeat(1 << 20));
    let mut got = fixture.post_text("deaf?agent=deaf", &long).await;
    while got.status == 202 {
        got = fixture.post_text("deaf", &long).await;
    }
    assert_eq!(got.status, 502, "{got:?}");
    assert_eq!(fixture.delete("deaf").await, 204);
}

#[tokio::test]
async fn the_last_response_needs_no_newline() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        add(settings, "hasty", r#"read -r l; printf '{"id":1,"result":"last"}'"#);
        add(settings, "cut", r#"read -r l; printf '{"id":1,"resu'"#);
    })
    .await;
    let got = fixture.post_text("hasty?agent=hasty", PING).await;
    assert_eq!((got.status, got.json()["result"].as_str()), (200, Some("last")), "{got:?}");
    let got = fixture.post_text("cut?agent=cut", PING).await;
    assert_eq!(got.status, 502, "{got:?}");
}

/// The message is longer than all buffers on the way, so it is still being written when the agent exits.
#[tokio::test]
async fn exit_during_a_write_is_told_with_its_code_and_among_the_events() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        let script = "read -r l; echo '{\"id\":1,\"result\":1}'; head -c 1000 >/dev/null; \
                      echo bad news >&2; exit 5";
        add(settings, "dies", script);
        let script = "read -r l; echo '{\"id\":1,\"result\":1}'; head -c 1000 >/dev/null; \
                      exec <&-; sleep 0.2; echo bad news >&2; exit 5";
        add(settings, "deaf-first", script);
    })
    .await;
    for agent in ["dies", "deaf-first"] {
        fixture.request(&format!("{agent}?agent={agent}"), json!(1), "start").await;
        let mut events = fixture.events(agent, Some("1")).await;
        let long = format!(r#"{{"id":2,"method":"{}"}}"#, "x".repeat(8 << 20));
        let got = fixture.post_text(agent, &long).await;
        let problem = got.json();
        assert_eq!(
            (got.status, &problem["type"]),
            (502, &"urn:sandbox-agent:error:agent_process_exited".into()),
            "{agent}: {problem}"
        );
        assert_eq!(problem["details"]["exitCode"], 5, "{agent}: {problem}");
        assert!(problem["details"]["stderr"].as_str().unwrap().contains("bad news"), "{problem}");
        let event = events.next().await.unwrap().data;
        assert_eq!((&event["id"], &event["error"]["data"]["exitCode"]), (&json!(2), &json!(5)));
        assert_eq!(events.next().await.unwrap().data["method"], "_adapter/agent_exited");
        // A notification waits for its write too.
        fixture.request(&format!("{agent}?agent={agent}"), json!(1), "start").await;
        let long = format!(r#"{{"method":"{}"}}"#, "x".repeat(8 << 20));
        let got = fixture.post_text(agent, &long).await;
        assert_eq!((got.status, &got.json()["details"]["exitCode"]), (502, &json!(5)), "{got:?}");
    }
}

#[tokio::test]
async fn agent_that_closes_its_output_has_ended() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        let script = "read -r l; echo '{\"id\":1,\"result\":'$$'}'; read -r l; exec >&-; \
                      while :; do sleep 1; done";
        add(settings, "mute", script);
    })
    .await;
    let pid = fixture.request("a?agent=mute", json!(1), "start").await["result"].to_string();
    let mut events = fixture.events("a", Some("1")).await;
    let began = Instant::now();
    let got = fixture.post("a", &json!({ "id": 2, "method": "ping" })).await;
    let problem = got.json();
    assert_eq!(
        (got.status, &problem["type"]),
        (502, &"urn:sandbox-agent:error:agent_process_exited".into())
    );
    assert!(
        problem["detail"].as_str().unwrap().contains("closed its standard output"),
        "{problem}"
    );
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(events.next().await.unwrap().data["id"], 2);
    assert_eq!(events.next().await.unwrap().data["method"], "_adapter/agent_exited");
    assert_eq!(fixture.servers().await, [("a".to_owned(), "exited".to_owned())]);
    assert!(!std::path::Path::new("/proc").join(pid).exists());
}

#[tokio::test]
async fn lines_that_are_no_messages_are_reported() {
    let fixture = Fixture::start().await;
    fixture.request("a?agent=echo", json!(1), "garbage").await;
    let events = fixture.events("a", None).await.take(2).await;
    assert_eq!(events[0].data["method"], "_adapter/invalid_stdout");
    assert_eq!(events[0].data["params"]["raw"], "not a message");
    assert!(events[0].data["params"]["error"].is_string());
    assert_eq!(events[1].data["method"], "seen");
}

#[tokio::test]
async fn a_line_above_the_bound_ends_the_agent() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        settings.max_line_bytes = 100_000;
        add(settings, "long", "read -r line; head -c 1000000 /dev/zero | tr '\\0' x; sleep 60");
    })
    .await;
    let got = fixture.post_text("a?agent=long", PING).await;
    assert_eq!(got.status, 502);
    assert!(got.json()["detail"].as_str().unwrap().contains("more than 100000 bytes"), "{got:?}");
}

#[tokio::test]
async fn a_quiet_agent_is_a_timeout_and_output_resets_it() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        settings.request_timeout = Duration::from_secs(2);
        let slow = "read -r l; for i in 1 2 3 4 5 6; do sleep 0.5; echo '{\"method\":\"n\"}'; done; \
                    echo '{\"id\":1,\"result\":1}'; sleep 60";
        add(settings, "slow", slow);
    })
    .await;
    let began = Instant::now();
    let got = fixture.post_text("slow?agent=slow", PING).await;
    assert_eq!((got.status, began.elapsed() > Duration::from_secs(2)), (200, true), "{got:?}");
    let hang = json!({ "id": 1, "method": "hang" });
    let got = fixture.post("a?agent=echo", &hang).await;
    assert_eq!(
        (got.status, got.json()["type"].as_str()),
        (504, Some("urn:sandbox-agent:error:timeout"))
    );
    // The agent goes on, and the id of the request that was given up is in use.
    assert_eq!(fixture.request("a", json!(2), "ping").await["id"], 2);
    assert_eq!(fixture.post_text("a", PING).await.status, 409);
    // While the agent waits for its client, the clock does not run.
    let asking = json!({ "id": 7, "method": "ask" });
    let answer = async {
        let mut events = fixture.events("a", None).await;
        while events.next().await.unwrap().data["method"] != "question" {}
        tokio::time::timeout(Duration::from_secs(3), events.next()).await.unwrap_err();
        fixture.post("a", &json!({ "id": "q", "result": {} })).await
    };
    let (got, answered) = tokio::join!(fixture.post("a", &asking), answer);
    assert_eq!((got.status, answered.status), (200, 202), "{got:?}");
}

#[tokio::test]
async fn messages_of_the_client_do_not_reset_the_timeout() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        settings.request_timeout = Duration::from_secs(1);
        add(settings, "mute", "while read -r l; do :; done");
    })
    .await;
    let post = json!({ "method": "still here" });
    let mut keep_alive = tokio::time::interval(Duration::from_millis(100));
    let notify = async {
        loop {
            keep_alive.tick().await;
            // The first of them may arrive before the request that starts the agent.
            let status = fixture.post("a", &post).await.status;
            assert!([202, 400].contains(&status), "{status}");
        }
    };
    let asked = fixture.post_text("a?agent=mute", PING);
    let asked = tokio::time::timeout(Duration::from_secs(20), asked);
    let got = tokio::select! {
        got = asked => got.unwrap(),
        () = notify => unreachable!(),
    };
    assert_eq!(
        (got.status, got.json()["type"].as_str()),
        (504, Some("urn:sandbox-agent:error:timeout"))
    );
}

#[tokio::test]
async fn a_total_bound_holds_although_the_agent_talks() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        settings.total_timeout = Some(Duration::from_millis(500));
        add(settings, "talks", "while :; do echo '{\"method\":\"n\"}'; sleep 0.1; done");
    })
    .await;
    let got = fixture.post_text("a?agent=talks", PING).await;
    assert_eq!(got.status, 504, "{got:?}");
}

#[tokio::test]
async fn an_agent_that_reads_nothing_blocks_nobody_else() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        settings.request_timeout = Duration::from_secs(3);
        add(settings, "asleep", "sleep 60");
    })
    .await;
    let long = format!(r#"{{"id":1,"method":"{}"}}"#, "x".repeat(1 << 20));
    let (blocked, served) = tokio::join!(
        fixture.post_text("a?agent=asleep", &long),
        fixture.request("b?agent=echo", json!(1), "ping"),
    );
    assert_eq!((blocked.status, &served["id"]), (504, &json!(1)));
    let began = Instant::now();
    assert_eq!(fixture.delete("a").await, 204);
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn delete_ends_children_that_ignore_signals() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        let script = "trap '' TERM INT HUP; (trap '' TERM; sleep 300) & \
                      echo '{\"id\":1,\"result\":'$!'}'; while :; do sleep 1; done";
        add(settings, "stubborn", script);
    })
    .await;
    let child = fixture.request("a?agent=stubborn", json!(1), "start").await["result"].to_string();
    let began = Instant::now();
    assert_eq!(fixture.delete("a").await, 204);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
    assert!(status.is_empty() || status.contains("State:\tZ"), "{status}");
}

#[tokio::test]
async fn delete_during_a_prompt_fails_it_at_once_and_a_new_start_may_follow() {
    let fixture = Fixture::start().await;
    fixture.request("a?agent=echo", json!(1), "ping").await;
    let mut events = fixture.events("a", Some("2")).await;
    let hang = json!({ "id": 2, "method": "hang" });
    let began = Instant::now();
    let (waiting, ()) = tokio::join!(fixture.post("a", &hang), async {
        assert_eq!(events.next().await.unwrap().data["method"], "hanging");
        assert_eq!(fixture.delete("a").await, 204);
    });
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(waiting.status, 502, "{waiting:?}");
    while events.next().await.is_some() {}
    assert!(fixture.servers().await.is_empty());
    // The id is free: it needs the name of an agent, and its events begin anew.
    assert_eq!(fixture.post_text("a", PING).await.status, 400);
    assert_eq!(fixture.request("a?agent=echo", json!(2), "ping").await["id"], 2);
    assert_eq!(fixture.events("a", None).await.take(1).await[0].id, Some(1));
}

/// The agent exits at SIGTERM by itself; its child is in a session of its own and ignores signals.
#[tokio::test]
async fn delete_ends_children_in_other_sessions() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        let script = "trap 'exit 0' TERM; setsid sh -c 'trap \"\" TERM HUP; \
                      echo {\\\"id\\\":1,\\\"result\\\":$$}; while :; do sleep 1; done' & \
                      while :; do sleep 0.05; done";
        add(settings, "daemon", script);
    })
    .await;
    let child = fixture.request("a?agent=daemon", json!(1), "start").await["result"].to_string();
    let began = Instant::now();
    assert_eq!(fixture.delete("a").await, 204);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let is_gone = || {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    };
    while !is_gone() {
        assert!(began.elapsed() < Duration::from_secs(2), "the child goes on");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_slow_reader_loses_nothing_within_the_bound_and_is_told_beyond_it() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        settings.replay = ReplayLimits { events: 400, bytes: 1 << 20 };
    })
    .await;
    fixture.request("a?agent=echo", json!(1), "burst").await;
    let all = fixture.events("a", None).await.take(302).await;
    let ids: Vec<_> = all.iter().map(|event| event.id.unwrap()).collect();
    assert_eq!(ids, (1..=302).collect::<Vec<u64>>());
    fixture.request("a", json!(2), "burst").await;
    let mut events = fixture.events("a", Some("100")).await;
    let gap = events.next().await.unwrap();
    assert_eq!((gap.name.as_str(), gap.id, gap.data), ("gap", None, json!({ "oldest": 205 })));
    let rest = events.take(400).await;
    assert_eq!((rest[0].id, rest[399].id), (Some(205), Some(604)));
}

#[tokio::test]
async fn servers_and_requests_are_bounded() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        settings.max_servers = 2;
        settings.max_requests = 1;
    })
    .await;
    fixture.request("a?agent=echo", json!(1), "ping").await;
    fixture.request("b?agent=echo", json!(1), "ping").await;
    let got = fixture.post_text("c?agent=echo", PING).await;
    assert_eq!(got.status, 503, "{got:?}");
    let hang = json!({ "id": 1, "method": "hang" });
    let waiting = fixture.post("a", &hang);
    tokio::pin!(waiting);
    let mut events = fixture.events("a", Some("2")).await;
    tokio::select! {
        got = &mut waiting => panic!("{got:?}"),
        event = events.next() => assert_eq!(event.unwrap().data["method"], "hanging"),
    }
    assert_eq!(fixture.post("a", &json!({ "id": 2, "method": "ping" })).await.status, 503);
    fixture.delete("a").await;
    assert_eq!(waiting.await.status, 502);
    fixture.request("c?agent=echo", json!(1), "ping").await;
}

#[tokio::test]
async fn a_hundred_servers_work_at_once() {
    let fixture = Fixture::start().await;
    let request = async |number: usize| {
        let server = format!("s{number}?agent=echo");
        fixture.request(&server, json!(number), "ping").await["id"].as_u64()
    };
    let answers = futures_util::future::join_all((0..100).map(request)).await;
    assert_eq!(answers, (0..100).map(Some).collect::<Vec<_>>());
    assert_eq!(fixture.servers().await.len(), 100);
}
