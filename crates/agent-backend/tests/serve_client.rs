//! The client of `serve`, against a server that a test writes line by line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agent_backend::serve_client::{EventKind, SessionEventStreamItem, SessionId, SessionStatus};
use agent_backend::{ErrorKind, Result, ServeClient, ServeClientSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Answers one connection after another with these texts. The task returns the requests.
async fn server(answers: Vec<String>) -> (ServeClient, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            requests.push(String::from_utf8(request).unwrap());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    (ServeClient::new(ServeClientSettings::new(url).token("t0ken")).unwrap(), serving)
}

fn stream_of(events: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}")
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn status_event(id: u64, status: &str) -> String {
    let data = format!(r#"{{"type":"status","status":"{status}","ts":"2026-01-31T12:00:00Z"}}"#);
    format!("id: {id}\ndata: {data}\n\n")
}

async fn statuses(client: &ServeClient, id: SessionId) -> Result<Vec<(u64, SessionStatus)>> {
    let mut events = client.follow_events(id);
    let mut seen = Vec::new();
    while let Some(SessionEventStreamItem { id, event }) = events.next().await? {
        let EventKind::Status { status, .. } = event.kind else { continue };
        seen.push((id, status));
    }
    Ok(seen)
}

#[tokio::test]
async fn events_continue_behind_the_last_one_after_a_lost_connection() {
    let first = status_event(1, "queued") + &status_event(2, "provisioning");
    // The third event is cut: it has not been received.
    let cut = first + "id: 3\ndata: {\"type\":\"sta";
    let unknown = "id: 3\ndata: {\"type\":\"fromTheFuture\",\"ts\":\"2026-01-31T12:00:00Z\"}\n\n";
    let rest =
        format!(":\n\n{unknown}{}{}", status_event(4, "running"), status_event(5, "completed"));
    let busy = answer("503 Service Unavailable", "{}");
    let (client, serving) = server(vec![stream_of(&cut), busy, stream_of(&rest)]).await;
    let id = SessionId::generate();
    let seen = statuses(&client, id).await.unwrap();
    use SessionStatus::{Completed, Provisioning, Queued, Running};
    assert_eq!(seen, [(1, Queued), (2, Provisioning), (4, Running), (5, Completed)]);
    let requests = serving.await.unwrap();
    let start = format!("GET /api/v1/sessions/{id}/events HTTP/1.1\r\n");
    assert!(requests.iter().all(|request| request.starts_with(&start)), "{requests:?}");
    assert!(requests.iter().all(|request| request.contains("authorization: Bearer t0ken\r\n")));
    assert!(!requests[0].contains("last-event-id"), "{}", requests[0]);
    for request in &requests[1..] {
        assert!(request.contains("last-event-id: 2\r\n"), "{request}");
    }
}

#[tokio::test]
async fn an_ended_session_without_more_events_ends_the_stream() {
    let (client, serving) = server(vec!["HTTP/1.1 204 No Content\r\n\r\n".to_owned()]).await;
    let mut events = client.follow_events_after(SessionId::generate(), 7);
    assert_eq!(events.next().await.unwrap(), None);
    assert!(serving.await.unwrap()[0].contains("last-event-id: 7\r\n"));
}

#[tokio::test]
async fn a_refusal_ends_the_stream_with_the_words_of_the_server() {
    let body = r#"{"title":"Not found","status":404,"detail":"there is no session X"}"#;
    let (client, _serving) = server(vec![answer("404 Not Found", body)]).await;
    let error = statuses(&client, SessionId::generate()).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::NotFound, "there is no session X"));
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_at_once_for_a_request() {
    let (client, serving) = server(Vec::new()).await;
    serving.await.unwrap();
    let error = client.session(SessionId::generate()).await.unwrap_err();
    assert!(error.message().contains("127.0.0.1"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("agent-backend serve")), "{error:?}");
}

#[tokio::test]
async fn follower_that_watches_the_status_waits_between_its_attempts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let serving = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut settings = ServeClientSettings::new(url);
    settings.reconnect_timeout = Duration::from_secs(1);
    let client = ServeClient::new(settings).unwrap();
    let mut events = client.follow_events(SessionId::generate());
    let mut status = events.watch_status();
    let mut changes = 0;
    // Like a live view, which is drawn again many times in a second.
    let mut redraw = tokio::time::interval(Duration::from_millis(5));
    let error = loop {
        tokio::select! {
            biased;
            Ok(()) = status.changed() => changes += 1,
            _ = redraw.tick() => {}
            event = events.next() => break event.unwrap_err(),
        }
    };
    serving.abort();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    let attempts = attempts.load(Ordering::Relaxed);
    assert!((2..=8).contains(&attempts), "{attempts} attempts in a second");
    assert_eq!(changes, 1, "only the first change to reconnecting is one");
}
