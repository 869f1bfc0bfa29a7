//! TLS connections. Errors say what is wrong with a certificate.

use std::io;
use std::sync::Arc;

use ab_core::{Error, ErrorCause, ErrorCode, ErrorKind};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure::{ConnectError, TimeLeft, lower};
use crate::client::address::{HostPort, invalid};
use crate::client::endpoint::TrustRoots;

pub(super) async fn wrap(
    stream: TcpStream,
    host: &HostPort,
    roots: &TrustRoots,
    time_left: TimeLeft,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let who = host.to_string();
    let name = ServerName::try_from(host.host().to_owned())
        .map_err(|_| invalid(format!("'{}' cannot be the name in a certificate", host.host())))?;
    let roots = roots.clone();
    // Read the certificates of the system on a thread that may block, because this is slow.
    let made = tokio::task::spawn_blocking(move || config(&roots));
    let config = time_left.spend("trust", &who, made).await?;
    let config = config.map_err(|error| ConnectError::lost("trust", &who, error))??;
    let shaking = TlsConnector::from(config).connect(name, stream);
    let shaken = time_left.spend("greet", &who, shaking).await?;
    shaken.map_err(|error| unshaken(&who, error))
}

fn config(roots: &TrustRoots) -> Result<Arc<ClientConfig>, Error> {
    let (system, more) = match roots {
        TrustRoots::System => (true, None),
        TrustRoots::SystemAnd(pem) => (true, Some(pem)),
        TrustRoots::Only(pem) => (false, Some(pem)),
    };
    let mut store = RootCertStore::empty();
    if let Some(pem) = more {
        let mut count = 0;
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate
                .map_err(|error| invalid(format!("cannot read the certificates given: {error}")))?;
            store
                .add(certificate)
                .map_err(|error| invalid(format!("cannot use a certificate given: {error}")))?;
            count += 1;
        }
        if count == 0 {
            return Err(invalid("the given file contains no certificate"));
        }
    }
    if system {
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
    }
    if store.is_empty() {
        let message = "the system has no trusted certificates";
        return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
            .with_hint(
                "install the package ca-certificates, or name a PEM file with SSL_CERT_FILE",
            ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(format!("cannot use TLS: {error}")))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn unshaken(who: &str, error: io::Error) -> ConnectError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let failure = match inner {
        Some(rustls::Error::InvalidCertificate(what)) => {
            let (what, hint) = wrong(what);
            ConnectError::denied(format!("the certificate of {who} {what}"))
                .with_detail(ErrorCause::CertificateRefused)
                .with_hint(hint)
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            ConnectError::lost("greet", who, "it does not speak TLS")
                .with_detail(ErrorCause::NotTls)
        }
        Some(rustls::Error::PeerIncompatible(why)) => ConnectError::foreign(
            "greet",
            who,
            lower(&format!("no common TLS version or cipher: {why:?}")),
        ),
        Some(other) => ConnectError::lost("greet", who, lower(&other.to_string())),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            ConnectError::lost("greet", who, "it hung up")
        }
        None => ConnectError::lost("greet", who, lower(&error.to_string())),
    };
    failure.with_source(error)
}

/// A text about what is wrong with a certificate, and a hint about how to fix it.
fn wrong(error: &CertificateError) -> (String, &'static str) {
    let owner = "the owner of the server must renew it";
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("has expired".to_owned(), owner)
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("is not valid yet".to_owned(), "check the clocks of both machines")
        }
        CertificateError::UnknownIssuer => (
            "is from an issuer that is not trusted".to_owned(),
            "if you trust the issuer, put its certificate into a PEM file and name that file with SSL_CERT_FILE",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ("is for another name".to_owned(), "use the name that the certificate is for")
        }
        CertificateError::BadSignature => (
            "is not signed by the issuer that it names".to_owned(),
            "if the issuer has a new certificate that you trust, name its PEM file with SSL_CERT_FILE",
        ),
        CertificateError::Revoked => ("is revoked".to_owned(), owner),
        CertificateError::Other(other) => match other.to_string().as_str() {
            "CaUsedAsEndEntity" => (
                "is a CA certificate, not a server certificate".to_owned(),
                "the owner of the server must create a server certificate, with 'CA:FALSE'",
            ),
            other => (format!("is not valid: {}", spelled(other)), owner),
        },
        other => (format!("is not valid: {}", spelled(&other.to_string())), owner),
    }
}

/// Splits the name of a library's error, such as `BadDerTime`, into words. Other text is not
/// changed.
fn spelled(text: &str) -> String {
    if !text.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        return lower(text);
    }
    let mut words = String::new();
    for letter in text.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}
