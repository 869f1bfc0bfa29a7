//! The SSH handshake: algorithms, key exchange, and the check of the host key.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ab_core::{ErrorCause, Result};
use russh::client::{Config, connect_stream};
use russh::keys::ssh_key::EcdsaCurve;
use russh::keys::{Algorithm, HashAlg};
use russh::{Preferred, SshId, cipher, compression, kex};
use tokio::sync::oneshot;

use super::Dialled;
use super::client::{Client, Failure, apart};
use super::failure::{ConnectError, TimeLeft, lower, words};
use super::nonblocking_shutdown::NonblockingShutdown;
use crate::backlog::Backlog;
use crate::client::address::HostPort;
use crate::client::endpoint::ByteStream;
use crate::client::host_key::HostKeyCheck;
use crate::client::lines::Lines;
use crate::client::settings::{ClientSettings, Keepalive};
use crate::cut::Cuttable;

const IDENT: &str = concat!("SSH-2.0-AgentBackend_", env!("CARGO_PKG_VERSION"));
/// The receive window of a channel: the number of bytes that a server may send before they are
/// acknowledged.
const WINDOW: u32 = 16 * 1024 * 1024;
/// Number of bytes that are buffered for a server that reads slowly: the windows of eight channels.
/// A server stops reading while it waits to send its own output, so this end must keep reading.
const BACKLOG: usize = 8 * crate::inbox::WINDOW as usize;
/// Maximum packet size. russh does not accept larger packets.
const PACKET: u32 = 65_535;

/// Safe ciphers, the fastest first. AES-GCM is more than twice as fast as ChaCha20 on current
/// processors.
const CIPHERS: &[cipher::Name] =
    &[cipher::AES_128_GCM, cipher::AES_256_GCM, cipher::CHACHA20_POLY1305];

const EXCHANGES: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::ECDH_SHA2_NISTP256,
    kex::ECDH_SHA2_NISTP384,
    kex::ECDH_SHA2_NISTP521,
    kex::DH_G16_SHA512,
    kex::DH_G14_SHA256,
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
];

/// The accepted types of host keys. None of them uses SHA-1.
const KEYS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// Performs the SSH handshake with the server. Does not log in.
pub(super) async fn greet(
    settings: &ClientSettings,
    who: &str,
    check: &HostKeyCheck,
    stream: impl ByteStream + 'static,
    time_left: TimeLeft,
) -> Result<Dialled, ConnectError> {
    let host = settings.host();
    let wanted = match &host {
        Some(host) => wanted(check, host).await?,
        None => Vec::new(),
    };
    let config = Arc::new(config(settings.keepalive, &wanted));
    let (stream, cut) = Cuttable::new(NonblockingShutdown(Backlog::with_limit(stream, BACKLOG)));
    let (over, gone) = oneshot::channel();
    let check = host.map(|host| (check.clone(), host));
    let lines = Arc::<Lines>::default();
    let client = Client::new(check, who, over, lines.clone());
    let greeting = connect_stream(config, stream, client);
    let greeted = time_left.spend("greet", who, greeting).await;
    let greeted = greeted.map_err(|late| late.with_detail(ErrorCause::NoSshHandshake))?;
    let handle = greeted.map_err(|failure| match failure {
        Failure::HostKey(error) => ConnectError::from(error),
        Failure::Ssh(error) => ungreeted(who, error),
    })?;
    Ok(Dialled { handle, lines, who: who.to_owned(), gone, cut })
}

fn ungreeted(who: &str, error: russh::Error) -> ConnectError {
    let why = words(&error);
    let failure = match &error {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => {
            let kind = lower(&format!("{kind:?}"));
            let why = format!("no {kind} algorithm in common; it has {}", theirs.join(", "));
            ConnectError::foreign("greet", who, ab_core::error::escape_unprintable(&why))
        }
        russh::Error::WrongServerSig => ConnectError::denied(format!(
            "cannot connect to {who}: it could not prove that it owns its host key"
        )),
        _ => ConnectError::lost("greet", who, why).with_detail(ErrorCause::NoSshHandshake),
    };
    failure.with_source(error)
}

/// Reads which types of keys are known for the host, on a thread that may block.
async fn wanted(check: &HostKeyCheck, host: &HostPort) -> Result<Vec<Algorithm>> {
    let (check, host) = (check.clone(), host.clone());
    apart(move || check.algorithms(&host)).await
}

fn config(keepalive: Keepalive, wanted: &[Algorithm]) -> Config {
    let missed = u32::try_from(keepalive.max_missed).unwrap_or(u32::MAX);
    let silence = keepalive.interval.saturating_mul(missed.saturating_add(1));
    // Put the known key types first, so that the server uses one of them.
    let is_wanted = |key: &Algorithm| wanted.iter().any(|wanted| same(wanted, key));
    let (mut keys, others): (Vec<_>, Vec<_>) = KEYS.iter().cloned().partition(is_wanted);
    keys.extend(others);
    Config {
        client_id: SshId::Standard(Cow::Borrowed(IDENT)),
        window_size: WINDOW,
        maximum_packet_size: PACKET,
        preferred: Preferred {
            kex: Cow::Borrowed(EXCHANGES),
            key: Cow::Owned(keys),
            cipher: Cow::Borrowed(CIPHERS),
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::default()
        },
        keepalive_interval: Some(keepalive.interval),
        keepalive_max: keepalive.max_missed,
        // russh sends no keepalive while the window of the peer is full. This timeout covers that
        // case.
        inactivity_timeout: Some(silence.saturating_add(Duration::from_secs(1))),
        ..Config::default()
    }
}

/// Whether two algorithms use the same type of key. RSA keys can sign with different hashes.
fn same(one: &Algorithm, other: &Algorithm) -> bool {
    matches!((one, other), (Algorithm::Rsa { .. }, Algorithm::Rsa { .. })) || one == other
}
