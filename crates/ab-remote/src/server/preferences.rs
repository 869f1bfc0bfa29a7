//! The configuration of russh: algorithms, sizes and timeouts.

use std::borrow::Cow;
use std::time::Duration;

use russh::keys::ssh_key::EcdsaCurve;
use russh::keys::{Algorithm, HashAlg};
use russh::server::Config;
use russh::{Limits, Preferred, SshId, cipher, compression, kex, mac};

use super::SshServerSettings;
use crate::inbox::FIRST_WINDOW;

/// Maximum packet size. Some clients refuse larger packets.
const PACKET: u32 = 65_535;
/// Maximum number of queued messages from channels, each of at most one packet. russh encrypts all
/// queued messages before it sends any of them. With a small number, a client starts to read a long
/// answer while the server still prepares the rest. The number must be at least three, because the
/// end of a command needs three messages.
const OUTGOING: usize = 3;
/// The capacity of russh's queue for each channel. These queues are not used here.
const UNUSED: usize = 1;
/// Keys are renewed after this number of bytes, or after this time.
const REKEY_BYTES: usize = 1 << 30;
const REKEY_TIME: Duration = Duration::from_secs(3600);

/// Safe ciphers, the fastest first. AES-GCM is more than twice as fast as ChaCha20 on current
/// processors.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_128_GCM,
    cipher::AES_256_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_128_CTR,
    cipher::AES_192_CTR,
    cipher::AES_256_CTR,
];

const EXCHANGES: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::ECDH_SHA2_NISTP256,
    kex::ECDH_SHA2_NISTP384,
    kex::ECDH_SHA2_NISTP521,
    kex::DH_G16_SHA512,
    kex::DH_G14_SHA256,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];

const MACS: &[mac::Name] =
    &[mac::HMAC_SHA256_ETM, mac::HMAC_SHA512_ETM, mac::HMAC_SHA256, mac::HMAC_SHA512];

const KEYS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

pub(super) fn config(settings: &SshServerSettings) -> Config {
    Config {
        server_id: SshId::Standard(Cow::Owned(format!(
            "SSH-2.0-{}",
            settings.software_identification
        ))),
        methods: settings.access.methods(),
        auth_rejection_time: settings.refused_login_delay,
        // Many clients first ask for the available methods. This does not count as a failed
        // attempt.
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![settings.host_key.key().clone()],
        limits: Limits::new(REKEY_BYTES, REKEY_BYTES, REKEY_TIME),
        window_size: FIRST_WINDOW,
        maximum_packet_size: PACKET,
        channel_buffer_size: UNUSED,
        event_buffer_size: OUTGOING,
        preferred: Preferred {
            kex: Cow::Borrowed(EXCHANGES),
            key: Cow::Borrowed(KEYS),
            cipher: Cow::Borrowed(CIPHERS),
            mac: Cow::Borrowed(MACS),
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::default()
        },
        max_auth_attempts: settings.max_login_attempts,
        // A client may be silent. Connections of clients that do not read are ended by
        // `StallTimeoutStream`.
        inactivity_timeout: None,
        keepalive_interval: settings.keepalive,
        keepalive_max: 3,
        nodelay: true,
        ..Config::default()
    }
}
