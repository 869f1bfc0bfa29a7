//! TLS: with a certificate, connections are encrypted; files that make no sense are named.

use std::sync::Arc;

use ab_server::{HttpAccessPolicy, HttpApp, HttpServer, TlsConfig};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::caller::{memory, open_with, parse, serves};

#[tokio::test]
async fn connections_are_encrypted_with_the_certificate() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = TlsConfig::load(&certificate, &key).unwrap();
    let port = HttpServer::new(
        HttpApp::new(HttpAccessPolicy::default()).with_daemon_routes(serves(&memory().await)),
    )
    .with_tls(Some(tls));
    let port = open_with(port).await;

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(port.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    assert_eq!(parse(&bytes).status, 200);

    // Who does not encrypt gets nowhere.
    let mut plain = TcpStream::connect(port.address()).await.unwrap();
    plain.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes).await;
    assert!(!String::from_utf8_lossy(&bytes).contains("200 OK"));
}

#[test]
fn files_that_make_no_sense_are_named() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let certificate = file("cert.pem", &made.cert.pem());
    let key = file("key.pem", &made.signing_key.serialize_pem());
    let foreign = file("foreign.pem", &other.signing_key.serialize_pem());
    let empty = file("empty.pem", "");
    let missing = directory.path().join("missing.pem");
    for (certificate, key, named) in [
        (&missing, &key, &missing),
        (&empty, &key, &empty),
        (&certificate, &missing, &missing),
        (&certificate, &empty, &empty),
        (&certificate, &foreign, &foreign),
        (&certificate, &certificate, &certificate),
    ] {
        let failure = TlsConfig::load(certificate, key).unwrap_err();
        assert_eq!(&failure.path, named, "{failure}");
        assert!(failure.to_string().contains(&*named.to_string_lossy()), "{failure}");
    }
}
