//! Connecting as a client: to whom it should succeed, and everything that can be in the way.

mod certificates;
mod daemon;
mod host_keys;
mod logins;
mod openssh;
mod silence;
mod websockets;

use ab_core::{ErrorCode, ErrorKind};
use ab_remote::client::{ConnectError, RemoteClientSettings, check_connection};

use crate::stage::within;

async fn reached(settings: &RemoteClientSettings) {
    within(check_connection(settings)).await.unwrap();
}

/// Why a connection is not made.
async fn failure(settings: &RemoteClientSettings) -> ConnectError {
    let failure = within(check_connection(settings)).await.unwrap_err();
    let text = failure.to_string();
    assert!(text.starts_with(|first: char| !first.is_uppercase()), "{text}");
    assert!(!format!("{failure:?}").contains("secret"), "{failure:?}");
    failure
}

/// One that may pass: the connection was not made.
async fn lost(settings: &RemoteClientSettings) -> String {
    let failure = failure(settings).await;
    let error = &failure.error;
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
    );
    assert!(failure.retryable, "{failure:?}");
    said(&failure)
}

/// One that does not pass: somebody is not who it should be.
async fn denied(settings: &RemoteClientSettings) -> String {
    let failure = failure(settings).await;
    let error = &failure.error;
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::AuthFailed, ErrorKind::DeniedByPolicy),
        "{failure:?}"
    );
    assert!(!failure.retryable, "{failure:?}");
    said(&failure)
}

/// One that a setting is to blame for.
async fn invalid(settings: &RemoteClientSettings) -> String {
    let failure = failure(settings).await;
    let error = &failure.error;
    assert_eq!((error.code(), error.kind()), (ErrorCode::InvalidConfiguration, ErrorKind::Invalid));
    assert!(!failure.retryable, "{failure:?}");
    said(&failure)
}

/// Message and hint.
fn said(failure: &ConnectError) -> String {
    format!("{failure} [{}]", failure.error.hint().unwrap_or_default())
}
