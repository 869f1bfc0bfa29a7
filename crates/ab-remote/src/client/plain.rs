//! A workspace behind a server that speaks SFTP and runs commands, and nothing else.

use ab_core::driver::{BackendKind, Capabilities, File};
use ab_core::metadata::{Content, Listing, Removed, Renamed, Space, Stat};
use ab_core::options::{
    Attributes, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions, StatOptions,
    WriteOptions,
};
use ab_core::process::{ExecRequest, Process};
use ab_core::{EffectivePolicy, Error, Kind, Result, Verb, WsPath};
use bytes::Bytes;
use std::sync::Arc;

use super::remote::Shared;
use super::reply::Version;
use super::session::Session;
use super::settings::Settings;

#[derive(Debug, Default)]
pub(crate) struct Plain {}

fn lacks<T>(verb: Verb) -> Result<T> {
    Err(Error::unsupported(BackendKind::Remote, verb))
}

pub(crate) fn refusal(verb: Verb, code: u32, message: &str) -> Error {
    Error::new(verb.failure_code(), Kind::Io, format!("{message} ({code})")).with_verb(verb)
}

impl Plain {
    pub(crate) async fn greet(_: &Session, _: &Settings, _: &Version) -> Result<Self> {
        lacks(Verb::Connect)
    }
    pub(crate) fn data_limit(&self) -> usize {
        32 * 1024
    }
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    pub(crate) fn effective_policy(&self) -> EffectivePolicy {
        EffectivePolicy::default()
    }
    pub(crate) async fn stat(&self, _: &Session, _: &WsPath, _: StatOptions) -> Result<Stat> {
        lacks(Verb::Stat)
    }
    pub(crate) async fn list(&self, _: &Session, _: &WsPath, _: ListOptions) -> Result<Listing> {
        lacks(Verb::List)
    }
    pub(crate) async fn read(
        &self,
        _: &Arc<Session>,
        _: &WsPath,
        _: ReadOptions,
    ) -> Result<Content> {
        lacks(Verb::Read)
    }
    pub(crate) async fn write(
        &self,
        _: &Arc<Session>,
        _: &WsPath,
        _: Bytes,
        _: WriteOptions,
    ) -> Result<Stat> {
        lacks(Verb::Write)
    }
    pub(crate) async fn open(
        &self,
        _: &Arc<Session>,
        _: &WsPath,
        _: OpenOptions,
    ) -> Result<Box<dyn File>> {
        lacks(Verb::Open)
    }
    pub(crate) async fn describe(&self, _: &Session, _: &Bytes) -> Result<Stat> {
        lacks(Verb::Stat)
    }
    pub(crate) async fn dress(&self, _: &Session, _: &Bytes, _: Attributes) -> Result<Stat> {
        lacks(Verb::SetAttributes)
    }
    pub(crate) async fn set_attributes(
        &self,
        _: &Session,
        _: &WsPath,
        _: Attributes,
    ) -> Result<Stat> {
        lacks(Verb::SetAttributes)
    }
    pub(crate) async fn read_link(&self, _: &Session, _: &WsPath) -> Result<String> {
        lacks(Verb::ReadLink)
    }
    pub(crate) async fn symlink(&self, _: &Session, _: &WsPath, _: &str) -> Result<()> {
        lacks(Verb::Symlink)
    }
    pub(crate) async fn create_dir(&self, _: &Session, _: &WsPath) -> Result<()> {
        lacks(Verb::Mkdir)
    }
    pub(crate) async fn remove(
        &self,
        _: &Session,
        _: &WsPath,
        _: RemoveOptions,
    ) -> Result<Removed> {
        lacks(Verb::Delete)
    }
    pub(crate) async fn rename(
        &self,
        _: &Session,
        _: &WsPath,
        _: &WsPath,
        _: RenameOptions,
    ) -> Result<Renamed> {
        lacks(Verb::Rename)
    }
    pub(crate) async fn space(&self, _: &Session) -> Result<Space> {
        lacks(Verb::Space)
    }
    pub(crate) async fn exec(
        &self,
        _: &Arc<Shared>,
        _: &Arc<Session>,
        _: ExecRequest,
    ) -> Result<Process> {
        lacks(Verb::Exec)
    }
}
