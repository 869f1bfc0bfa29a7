//! Certificates that prove something, and those that do not.

use ab_remote::client::{RemoteClientSettings, RemoteEndpoint, TrustRoots, WebSocketEndpoint};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CertifiedKey, DnType, IsCa, KeyPair,
    date_time_ymd,
};

use super::daemon::{Daemon, Door};
use super::websockets::answering;
use super::{denied, invalid, lost, reached};

fn issuer(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn certificate(
    issuer: &CertifiedIssuer<'_, KeyPair>,
    name: &str,
    change: impl FnOnce(&mut CertificateParams),
) -> CertifiedKey<KeyPair> {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    change(&mut params);
    let signing_key = KeyPair::generate().unwrap();
    let cert = params.signed_by(&signing_key, issuer).unwrap();
    CertifiedKey { cert, signing_key }
}

fn at(daemon: &Daemon, roots: TrustRoots) -> RemoteClientSettings {
    let mut socket = WebSocketEndpoint::new(&format!("wss://{}/ssh", daemon.address)).unwrap();
    socket.trust_roots = roots;
    RemoteClientSettings::new(RemoteEndpoint::WebSocket(socket))
}

#[tokio::test]
async fn a_daemon_behind_tls_is_reached() {
    let issuer = issuer("one");
    let daemon = Daemon::with(Door::Open, Some(&certificate(&issuer, "127.0.0.1", |_| {}))).await;
    reached(&at(&daemon, TrustRoots::Only(issuer.pem()))).await;
    reached(&at(&daemon, TrustRoots::SystemAnd(issuer.pem()))).await;
    daemon.end().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_named() {
    let issuer = issuer("one");
    let check = async |certificate: &CertifiedKey<KeyPair>, roots: TrustRoots, what: &str| {
        let daemon = Daemon::with(Door::Open, Some(certificate)).await;
        let said = denied(&at(&daemon, roots)).await;
        let expect = format!("the certificate of {} {what} [", daemon.address);
        assert!(said.starts_with(&expect), "{said}");
        daemon.end().await;
    };
    let roots = || TrustRoots::Only(issuer.pem());
    let expired = certificate(&issuer, "127.0.0.1", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    check(&expired, roots(), "has expired").await;
    let early = certificate(&issuer, "127.0.0.1", |params| {
        params.not_before = date_time_ymd(4000, 1, 1);
    });
    check(&early, roots(), "is not valid yet").await;
    let other = certificate(&issuer, "box.example", |_| {});
    check(&other, roots(), "is for another name").await;
    let foreign = certificate(&super::certificates::issuer("two"), "127.0.0.1", |_| {});
    check(&foreign, roots(), "is from an issuer that is not trusted").await;
    let forged = certificate(&super::certificates::issuer("one"), "127.0.0.1", |_| {});
    check(&forged, roots(), "is not signed by the issuer that it names").await;
    let of_an_issuer = certificate(&issuer, "127.0.0.1", |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    check(&of_an_issuer, roots(), "is a CA certificate, not a server certificate").await;
}

#[tokio::test]
async fn roots_that_are_none_and_servers_without_tls() {
    let daemon = Daemon::new(Door::Open).await;
    let said = invalid(&at(&daemon, TrustRoots::Only("nothing".to_owned()))).await;
    assert!(said.contains("no certificate"), "{said}");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    let said = invalid(&at(&daemon, TrustRoots::Only(broken))).await;
    assert!(said.contains("cannot use a certificate"), "{said}");
    let said = lost(&at(&daemon, TrustRoots::Only(issuer("one").pem()))).await;
    assert!(said.contains("it hung up"), "{said}");
    daemon.end().await;
    let plain = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let mut socket = WebSocketEndpoint::new(&format!("wss://{plain}/ssh")).unwrap();
    socket.trust_roots = TrustRoots::Only(issuer("one").pem());
    let said = lost(&RemoteClientSettings::new(RemoteEndpoint::WebSocket(socket))).await;
    assert!(said.contains("it does not speak TLS"), "{said}");
}
