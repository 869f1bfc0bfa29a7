//! Wrong tokens, one after another: they are slowed down and sent away, and nobody else is.

use std::time::Duration;

use ab_server::{HttpServerLimits, TokenGuessLimits};
use serde_json::json;

use crate::caller::{get, guarded, memory, open_within, post, serves, tool};

const WRONG: (&str, &str) = ("authorization", "Bearer wrong");

fn within(guessing: TokenGuessLimits) -> HttpServerLimits {
    HttpServerLimits {
        token_guesses: guessing,
        shutdown_grace: Duration::from_millis(50),
        ..HttpServerLimits::default()
    }
}

#[tokio::test]
async fn too_many_wrong_tokens_are_told_to_come_back_later() {
    // Without waiting, so that the limit is reached at once.
    let (first_wait, longest_wait) = (Duration::ZERO, Duration::ZERO);
    let guessing = TokenGuessLimits {
        max_attempts: 10,
        first_delay: first_wait,
        max_delay: longest_wait,
        ..TokenGuessLimits::default()
    };
    let port = open_within(serves(&memory().await), guarded(), within(guessing)).await;
    for number in 0..10 {
        // Every path that tells right from wrong counts.
        let (got, expect) = match number % 2 {
            0 => (post(port.address(), &[WRONG], "{}").await, 401),
            _ => (get(port.address(), "/health", &[WRONG]).await, 200),
        };
        assert_eq!(got.status, expect, "{number}: {got:?}");
    }
    for path in ["/mcp", "/health", "/api/v1/openapi.json", "/nowhere"] {
        let got = get(port.address(), path, &[WRONG]).await;
        assert_eq!((got.status, got.header("retry-after")), (429, Some("60")), "{path}: {got:?}");
        let title = if path.starts_with("/api/v1") { "title" } else { "error" };
        assert_eq!(got.json()[title], "Too many requests");
    }
    // A name that is not ours makes no difference by which a token could be told.
    let foreign = [WRONG, ("host", "evil.example")];
    assert_eq!(get(port.address(), "/health", &foreign).await.status, 429);
    // Who shows none guesses nothing, and who shows the right one may come in.
    assert_eq!(get(port.address(), "/mcp", &[]).await.status, 401);
    assert_eq!(get(port.address(), "/health", &[]).await.status, 200);
    let read = json!({ "path": "a.txt" });
    assert_eq!(tool(port.address(), "read_text_file", read, &[]).await.status, 200);
}

#[tokio::test]
async fn wrong_tokens_wait_and_right_ones_do_not() {
    let wait = Duration::from_secs(1000);
    let guessing = TokenGuessLimits {
        max_undelayed_attempts: 2,
        first_delay: wait,
        max_delay: wait,
        ..TokenGuessLimits::default()
    };
    let port = open_within(serves(&memory().await), guarded(), within(guessing)).await;
    for _ in 0..2 {
        assert_eq!(post(port.address(), &[WRONG], "{}").await.status, 401);
    }
    let address = port.address();
    let mut guess = tokio::spawn(async move { get(address, "/health", &[WRONG]).await.status });
    // It would be answered long before all of these.
    for _ in 0..50 {
        let read = json!({ "path": "a.txt" });
        assert_eq!(tool(port.address(), "read_text_file", read, &[]).await.status, 200);
    }
    assert!(futures_util::poll!(&mut guess).is_pending());
    // Nor does it hold up the end.
    port.shutdown().await;
    guess.abort();
}

#[tokio::test]
async fn only_so_many_wait() {
    let wait = Duration::from_secs(1000);
    let guessing = TokenGuessLimits {
        max_undelayed_attempts: 0,
        max_delayed_per_address: 1,
        first_delay: wait,
        max_delay: wait,
        ..TokenGuessLimits::default()
    };
    let port = open_within(serves(&memory().await), guarded(), within(guessing)).await;
    let address = port.address();
    let ask = move || tokio::spawn(async move { get(address, "/health", &[WRONG]).await.status });
    // One of the two waits, whichever comes first; there is no place for the other.
    let (mut one, mut other) = (ask(), ask());
    let answered = tokio::select! {
        status = &mut one => status,
        status = &mut other => status,
    };
    assert_eq!(answered.unwrap(), 429);
    port.shutdown().await;
    one.abort();
    other.abort();
}
