//! A file that is open on the server. It is valid as long as the connection exists.

use std::sync::Arc;

use ab_core::driver::File;
use ab_core::metadata::Stat;
use ab_core::options::AttributeChanges;
use ab_core::{Error, LostCallEffect, Result, Verb};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::context::CallContext;
use super::place::Place;
use super::reply::Reply;
use super::session::{Later, Session, extended};
use crate::sftp::extended::ExtendedRequest;
use crate::sftp::packet::SftpRequest;
use crate::sftp::status;
use crate::wire::call::RemoteCall;

/// Maximum number of requests of one read or write that are in flight at the same time.
const TOGETHER: usize = 32;

/// An open file. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    session: Arc<Session>,
    handle: Bytes,
    place: Place,
}

impl RemoteFile {
    pub(crate) fn new(session: Arc<Session>, handle: Bytes, place: Place) -> Self {
        Self { session, handle, place }
    }

    /// Runs an operation on this file. Adds the path of the file to errors.
    async fn within<T>(&self, verb: Verb, future: impl Future<Output = Result<T>>) -> Result<T> {
        let done = future.await.map_err(|error| match error.path() {
            Some(_) => self.place.error(error),
            None => error.with_path(self.place.inward(&self.behind()).to_string()),
        });
        done.map_err(|error| error.with_verb(verb))
    }

    /// The path of the file as the server writes it in its answers.
    fn behind(&self) -> ab_core::WsPath {
        let rest = self.place.path.split_at_scope_roots().rest;
        let rules = ab_core::PathParser::lenient().allow_reserved_names();
        rules.parse(rest).unwrap_or_else(|_| ab_core::WsPath::root())
    }

    /// Like [`read_at`](File::read_at), within the deadline of a call.
    pub(crate) async fn read_in(
        &self,
        context: CallContext<'_>,
        offset: u64,
        length: usize,
    ) -> Result<Bytes> {
        self.within(Verb::Read, self.stretch(context, offset, length)).await
    }

    /// Like [`stat`](File::stat), within the deadline of a call.
    pub(crate) async fn stat_in(&self, context: CallContext<'_>) -> Result<Stat> {
        let call = RemoteCall::StatHandle { handle: self.number() };
        self.within(Verb::Stat, self.session.call(context, Verb::Stat, &call)).await
    }

    /// Reads a range with as many requests as necessary.
    pub(crate) async fn stretch(
        &self,
        context: CallContext<'_>,
        offset: u64,
        length: usize,
    ) -> Result<Bytes> {
        let most = self.session.data_limit();
        if length <= most {
            return self.piece(context, offset, length).await;
        }
        let starts = (0..length).step_by(most);
        let pieces = stream::iter(starts)
            .map(|start| self.piece(context, offset + start as u64, most.min(length - start)));
        let mut pieces = pieces.buffered(TOGETHER);
        let mut whole = BytesMut::with_capacity(length);
        while let Some(piece) = pieces.try_next().await? {
            let expected = most.min(length - whole.len());
            whole.extend_from_slice(&piece);
            if piece.len() < expected {
                // The file ended here when this piece was read. Pieces after it would leave a gap.
                break;
            }
        }
        Ok(whole.freeze())
    }

    /// Reads a range that fits in one request. Returns fewer bytes only at the end of the file.
    async fn piece(&self, context: CallContext<'_>, offset: u64, length: usize) -> Result<Bytes> {
        let mut got = self.read_once(context, offset, length).await?;
        if got.is_empty() || got.len() >= length {
            return Ok(got);
        }
        // Before the end of the file, a server may return fewer bytes than requested.
        let mut whole = BytesMut::from(&got[..]);
        loop {
            got =
                self.read_once(context, offset + whole.len() as u64, length - whole.len()).await?;
            if got.is_empty() {
                return Ok(whole.freeze());
            }
            whole.extend_from_slice(&got);
            if whole.len() >= length {
                return Ok(whole.freeze());
            }
        }
    }

    async fn read_once(
        &self,
        context: CallContext<'_>,
        offset: u64,
        length: usize,
    ) -> Result<Bytes> {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let request = SftpRequest::Read { handle: self.handle.clone(), offset, length };
        match self.session.ask(context, Verb::Read, &request).await? {
            Reply::Data(data) if data.len() > length as usize => {
                Err(self.session.wrong(Verb::Read, "with more bytes than were asked for"))
            }
            // A server must report the end of a file by a status and not by empty data.
            Reply::Data(data) if data.is_empty() && length > 0 => {
                Err(self.session.wrong(Verb::Read, "with no bytes, and not that the file ends"))
            }
            Reply::Data(data) => Ok(data),
            Reply::Status(status) if status.code == status::EOF => Ok(Bytes::new()),
            Reply::Status(status) => Err(self.session.refusal(Verb::Read, status)),
            _ => Err(self.session.nonsense(Verb::Read)),
        }
    }

    /// Writes a range with as many requests as necessary.
    pub(crate) async fn fill(
        &self,
        context: CallContext<'_>,
        offset: u64,
        bytes: Bytes,
    ) -> Result<()> {
        if bytes.is_empty() {
            // Send an empty write too, so that the server decides whether the file is writable.
            return self.write_once(context, offset, bytes).await;
        }
        let most = self.session.data_limit();
        let starts = (0..bytes.len()).step_by(most.max(1));
        let pieces = stream::iter(starts).map(|start| {
            let end = bytes.len().min(start + most);
            let data = bytes.slice(start..end);
            async move {
                let written = self.write_once(context, offset + start as u64, data).await;
                written.map_err(|error| (start > 0, error))
            }
        });
        let written: Result<(), (bool, Error)> = pieces.buffered(TOGETHER).try_collect().await;
        written.map_err(|(later, error)| match error.lost_call_effect() {
            // If other requests of this write may have taken effect, the effect of this request
            // says nothing about the whole write.
            Some(effect)
                if bytes.len() > most && (later || effect != LostCallEffect::NotApplied) =>
            {
                error.with_lost_call_effect(LostCallEffect::Unknown, None)
            }
            _ => error,
        })
    }

    async fn write_once(&self, context: CallContext<'_>, offset: u64, data: Bytes) -> Result<()> {
        let request = SftpRequest::Write { handle: self.handle.clone(), offset, data };
        self.session.ask_for_done(context, Verb::Write, &request).await
    }

    pub(crate) fn number(&self) -> u32 {
        self.handle.first_chunk::<4>().map_or(0, |number| u32::from_be_bytes(*number))
    }

    /// The handle that the server returned.
    pub(crate) fn handle(&self) -> &Bytes {
        &self.handle
    }

    /// Drops the file without closing its handle. Used if the handle is no longer valid.
    pub(crate) fn forget(mut self) {
        self.handle = Bytes::new();
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if !self.handle.is_empty() {
            let number = self.session.requests.number();
            let request = SftpRequest::Close { handle: self.handle.clone() };
            self.session.later(Later::Packet(request.encode(number)));
        }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl File for RemoteFile {
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.read_in(CallContext::NONE, offset, length).await
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()> {
        self.within(Verb::Write, self.fill(CallContext::NONE, offset, bytes)).await
    }

    async fn set_len(&self, length: u64) -> Result<()> {
        let attributes = crate::sftp::SftpAttributes { size: Some(length), ..Default::default() };
        let request = SftpRequest::FsetStat { handle: self.handle.clone(), attributes };
        self.within(
            Verb::Write,
            self.session.ask_for_done(CallContext::NONE, Verb::Write, &request),
        )
        .await
    }

    async fn stat(&self) -> Result<Stat> {
        self.stat_in(CallContext::NONE).await
    }

    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat> {
        let verb = Verb::SetAttributes;
        let call = RemoteCall::SetHandleAttributes { handle: self.number(), attributes };
        self.within(verb, self.session.call(CallContext::NONE, verb, &call)).await
    }

    async fn sync(&self) -> Result<()> {
        let request = extended(&ExtendedRequest::Fsync { handle: self.handle.clone() });
        self.within(
            Verb::Write,
            self.session.ask_for_done(CallContext::NONE, Verb::Write, &request),
        )
        .await
    }
}
