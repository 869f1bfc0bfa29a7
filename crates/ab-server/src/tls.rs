//! TLS for a port: a certificate and its key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The TLS settings of a port.
#[derive(Clone)]
pub struct TlsConfig(pub(crate) TlsAcceptor);

/// The error for a file that cannot be used, with the reason.
#[derive(Debug)]
pub struct TlsError {
    pub path: PathBuf,
    pub reason: String,
}

impl TlsConfig {
    /// Loads PEM files: the certificate chain, which begins with the server's certificate, and its
    /// private key.
    pub fn load(certificates: &Path, key: &Path) -> Result<TlsConfig, TlsError> {
        let fails = |path: &Path, why: String| TlsError { path: path.to_owned(), reason: why };
        let chain = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| fails(certificates, error.to_string()))?;
        if chain.is_empty() {
            return Err(fails(certificates, "contains no certificate".to_owned()));
        }
        let secret =
            PrivateKeyDer::from_pem_file(key).map_err(|error| fails(key, error.to_string()))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, secret))
            .map_err(|error| fails(key, error.to_string()))?;
        Ok(TlsConfig(TlsAcceptor::from(Arc::new(config))))
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for TlsError {}
