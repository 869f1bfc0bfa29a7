//! A workspace, a server in front of it, and a remote backend that reaches it.

use std::io;
use std::sync::Arc;

use ab_core::Backend;
use ab_remote::client::{
    ByteStream, Connector, RemoteClientSettings, RemoteDriver, RemoteEndpoint,
};
use ab_remote::{HostKey, SshAccess, SshServer};
use async_trait::async_trait;

/// Reaches a server through memory: every connection is served by a task of its own.
#[derive(Debug)]
pub(crate) struct Memory(pub(crate) SshServer);

#[async_trait]
impl Connector for Memory {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let (mine, theirs) = tokio::io::duplex(256 * 1024);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve(theirs).await });
        Ok(Box::new(mine))
    }
}

pub(crate) fn server(backend: Backend) -> SshServer {
    let host_key = HostKey::generate_ephemeral("a test").unwrap();
    SshServer::new(backend, ab_remote::SshServerSettings::new(host_key, SshAccess::AnyUser))
}

/// Settings that reach a server through memory, and say what its root is called.
pub(crate) fn settings(server: &SshServer) -> RemoteClientSettings {
    let endpoint = RemoteEndpoint::Stream(Arc::new(Memory(server.clone())));
    let root = server.backend().info().root_aliases.first().cloned();
    RemoteClientSettings { root, ..RemoteClientSettings::new(endpoint) }
}

/// A remote backend that is connected.
pub(crate) async fn connected(settings: RemoteClientSettings) -> Backend {
    let backend = Backend::new(RemoteDriver::new(settings).unwrap());
    backend.connect().await.unwrap();
    backend
}
