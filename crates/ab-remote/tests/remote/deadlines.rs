//! How long calls take when nothing comes back. Time is paused: it passes at once while everybody
//! waits, so it is known to the second whatever the machine does.

use std::sync::Arc;
use std::time::Duration;

use ab_core::{Backend, ConnectionStatus, ErrorKind};
use ab_remote::client::{
    Keepalive, ReconnectPolicy, RemoteClientSettings, RemoteDriver, RemoteEndpoint,
};
use tokio::time::Instant;

use super::relay::{Relay, Weather};
use super::world::server;

const TIMEOUT: Duration = Duration::from_secs(100);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A workspace in memory behind a relay, and a backend that is connected to it.
async fn fixture(adjust: impl FnOnce(&mut RemoteClientSettings)) -> (Arc<Relay>, Backend) {
    let relay = Arc::new(Relay::new(server(agent_backend::memory())));
    let mut settings = RemoteClientSettings::new(RemoteEndpoint::Stream(relay.clone()));
    settings.operation_timeout = TIMEOUT;
    settings.keepalive = Keepalive { interval: HOUR, max_missed: 3 };
    settings.reconnection =
        ReconnectPolicy { initial_delay: MINUTE, max_delay: MINUTE, ..ReconnectPolicy::default() };
    adjust(&mut settings);
    let backend = Backend::new(RemoteDriver::new(settings).unwrap());
    backend.connect().await.unwrap();
    (relay, backend)
}

async fn seconds<T>(call: impl Future<Output = T>) -> (u64, T) {
    let before = Instant::now();
    let answer = call.await;
    (before.elapsed().as_secs(), answer)
}

#[tokio::test(start_paused = true)]
async fn a_call_has_one_deadline_for_the_link_and_the_answer() {
    let (relay, backend) = fixture(|_| {}).await;
    // The next connection says nothing once it is there.
    let stalls = relay.clone();
    let _listening = backend.on_status_change(move |change| {
        if change.to == ConnectionStatus::Connected {
            stalls.set(Weather::Stalled);
        }
    });
    relay.cut();
    // A call that begins before the loss is known would be rejected.
    while backend.status() != ConnectionStatus::Reconnecting {
        tokio::task::yield_now().await;
    }
    let (took, answer) = seconds(backend.stat("file")).await;
    let error = answer.unwrap_err();
    assert_eq!((took, error.kind()), (TIMEOUT.as_secs(), ErrorKind::Timeout), "{error}");
    assert!(error.message().contains("gave no answer"), "{error}");
    assert_eq!(backend.status(), ConnectionStatus::Connected, "the link is not to blame");
    backend.destroy().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_has_one_deadline_for_its_turn_and_the_answer() {
    let (relay, backend) = fixture(|settings| settings.max_operations = 1).await;
    relay.set(Weather::Stalled);
    let calls = (0..3).map(|_| seconds(backend.stat("file")));
    for (took, answer) in futures_util::future::join_all(calls).await {
        assert_eq!((took, answer.unwrap_err().kind()), (TIMEOUT.as_secs(), ErrorKind::Timeout));
    }
    let (took, process) =
        seconds(backend.query_lost_call(&ab_core::LostCallId::new("no ticket"))).await;
    assert_eq!((took, process.unwrap()), (0, ab_core::LostCallEffect::Unknown));
    backend.destroy().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_gets_on_is_not_cut() {
    let (relay, backend) = fixture(|settings| settings.max_operations = 1).await;
    // 16 KiB in a second.
    relay.set(Weather::Slow(Duration::from_secs(1)));
    let content = "0123456789abcdef".repeat(4 * 65536);
    let others = async {
        tokio::task::yield_now().await;
        // Behind the transfer, whose end it has to wait for.
        backend.exists("other").await
    };
    let (took, (written, other)) =
        seconds(async { tokio::join!(backend.write("file", content.clone()), others) }).await;
    written.unwrap();
    assert!(!other.unwrap());
    assert!(took > 2 * TIMEOUT.as_secs(), "{took}");
    let (took, read) = seconds(backend.read("file")).await;
    assert!(read.unwrap() == content);
    assert!(took > 2 * TIMEOUT.as_secs(), "{took}");
    backend.destroy().await.unwrap();
}
