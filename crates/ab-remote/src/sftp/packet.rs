//! SFTP version 3 packets: decodes requests and encodes answers.
//!
//! No I/O is done here. Decoding never reads beyond the packet, and every length is checked before
//! bytes are taken or memory is allocated. Names are kept as bytes. The code that uses a name
//! checks whether it is UTF-8, so that an invalid name is answered with a specific error.

use bytes::{BufMut, Bytes, BytesMut};

use super::attributes::SftpAttributes;

/// The only supported version.
pub(crate) const SFTP_VERSION: u32 = 3;
/// Maximum length of a packet in bytes, without its length field.
pub const MAX_PACKET_BYTES: usize = 256 * 1024;
/// Maximum number of bytes of a READ or WRITE, which `limits@openssh.com` reports. The npm client
/// subtracts 2 KiB from the packet size for its own headers.
pub const MAX_PACKET_DATA_BYTES: usize = MAX_PACKET_BYTES - 2 * 1024;

pub(crate) mod kind {
    pub(crate) const INIT: u8 = 1;
    pub(crate) const VERSION: u8 = 2;
    pub(crate) const OPEN: u8 = 3;
    pub(crate) const CLOSE: u8 = 4;
    pub(crate) const READ: u8 = 5;
    pub(crate) const WRITE: u8 = 6;
    pub(crate) const LSTAT: u8 = 7;
    pub(crate) const FSTAT: u8 = 8;
    pub(crate) const SETSTAT: u8 = 9;
    pub(crate) const FSETSTAT: u8 = 10;
    pub(crate) const OPENDIR: u8 = 11;
    pub(crate) const READDIR: u8 = 12;
    pub(crate) const REMOVE: u8 = 13;
    pub(crate) const MKDIR: u8 = 14;
    pub(crate) const RMDIR: u8 = 15;
    pub(crate) const REALPATH: u8 = 16;
    pub(crate) const STAT: u8 = 17;
    pub(crate) const RENAME: u8 = 18;
    pub(crate) const READLINK: u8 = 19;
    pub(crate) const SYMLINK: u8 = 20;
    pub(crate) const STATUS: u8 = 101;
    pub(crate) const HANDLE: u8 = 102;
    pub(crate) const DATA: u8 = 103;
    pub(crate) const NAME: u8 = 104;
    pub(crate) const ATTRS: u8 = 105;
    pub(crate) const EXTENDED: u8 = 200;
    pub(crate) const EXTENDED_REPLY: u8 = 201;
}

/// The flags of OPEN.
pub mod flags {
    pub const OPEN_FLAG_READ: u32 = 1;
    pub const OPEN_FLAG_WRITE: u32 = 2;
    pub const OPEN_FLAG_APPEND: u32 = 4;
    pub const OPEN_FLAG_CREATE: u32 = 8;
    pub const OPEN_FLAG_TRUNCATE: u32 = 16;
    pub const OPEN_FLAG_EXCLUSIVE: u32 = 32;
}

/// The number by which an answer is matched to its request.
pub type SftpRequestId = u32;

/// A packet from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPacket {
    /// The first packet that a client sends on a channel.
    Init {
        version: u32,
    },
    Request {
        id: SftpRequestId,
        request: SftpRequest,
    },
}

/// A request from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SftpRequest {
    Open {
        path: Bytes,
        flags: u32,
        attributes: SftpAttributes,
    },
    Close {
        handle: Bytes,
    },
    Read {
        handle: Bytes,
        offset: u64,
        length: u32,
    },
    Write {
        handle: Bytes,
        offset: u64,
        data: Bytes,
    },
    Lstat {
        path: Bytes,
    },
    Fstat {
        handle: Bytes,
    },
    SetStat {
        path: Bytes,
        attributes: SftpAttributes,
    },
    FsetStat {
        handle: Bytes,
        attributes: SftpAttributes,
    },
    OpenDir {
        path: Bytes,
    },
    ReadDir {
        handle: Bytes,
    },
    Remove {
        path: Bytes,
    },
    MakeDir {
        path: Bytes,
        attributes: SftpAttributes,
    },
    RemoveDir {
        path: Bytes,
    },
    RealPath {
        path: Bytes,
    },
    Stat {
        path: Bytes,
    },
    Rename {
        from: Bytes,
        to: Bytes,
    },
    ReadLink {
        path: Bytes,
    },
    /// The fields in the order in which they are sent. It depends on the client which field is the
    /// link.
    Symlink {
        first: Bytes,
        second: Bytes,
    },
    Extended {
        name: Bytes,
        body: Bytes,
    },
    /// A request of a type that SFTP version 3 does not define.
    Unknown {
        kind: u8,
    },
}

impl SftpRequest {
    /// The handle in the request, if it has one.
    pub fn handle(&self) -> Option<&Bytes> {
        match self {
            SftpRequest::Close { handle }
            | SftpRequest::Read { handle, .. }
            | SftpRequest::Write { handle, .. }
            | SftpRequest::Fstat { handle }
            | SftpRequest::FsetStat { handle, .. }
            | SftpRequest::ReadDir { handle } => Some(handle),
            SftpRequest::Open { .. }
            | SftpRequest::Lstat { .. }
            | SftpRequest::SetStat { .. }
            | SftpRequest::OpenDir { .. }
            | SftpRequest::Remove { .. }
            | SftpRequest::MakeDir { .. }
            | SftpRequest::RemoveDir { .. }
            | SftpRequest::RealPath { .. }
            | SftpRequest::Stat { .. }
            | SftpRequest::Rename { .. }
            | SftpRequest::ReadLink { .. }
            | SftpRequest::Symlink { .. }
            | SftpRequest::Extended { .. }
            | SftpRequest::Unknown { .. } => None,
        }
    }
}

impl SftpRequest {
    /// Whether the request may change the workspace.
    pub fn modifies_workspace(&self) -> bool {
        match self {
            SftpRequest::Open { flags, .. } => {
                flags & (flags::OPEN_FLAG_CREATE | flags::OPEN_FLAG_TRUNCATE) != 0
            }
            SftpRequest::Write { .. }
            | SftpRequest::SetStat { .. }
            | SftpRequest::FsetStat { .. }
            | SftpRequest::Remove { .. }
            | SftpRequest::MakeDir { .. }
            | SftpRequest::RemoveDir { .. }
            | SftpRequest::Rename { .. }
            | SftpRequest::Symlink { .. } => true,
            SftpRequest::Extended { name, .. } => name.starts_with(b"posix-rename@"),
            SftpRequest::Close { .. }
            | SftpRequest::Read { .. }
            | SftpRequest::Lstat { .. }
            | SftpRequest::Fstat { .. }
            | SftpRequest::OpenDir { .. }
            | SftpRequest::ReadDir { .. }
            | SftpRequest::RealPath { .. }
            | SftpRequest::Stat { .. }
            | SftpRequest::ReadLink { .. }
            | SftpRequest::Unknown { .. } => false,
        }
    }

    /// The complete packet, with its length field.
    pub fn encode(&self, id: SftpRequestId) -> Bytes {
        let mut out = SshFieldWriter::new(self.kind());
        match self {
            SftpRequest::Open { path, flags, attributes } => {
                attributes.encode(out.write_string(path).write_u32(*flags));
            }
            SftpRequest::Close { handle }
            | SftpRequest::Fstat { handle }
            | SftpRequest::ReadDir { handle } => {
                out.write_string(handle);
            }
            SftpRequest::Read { handle, offset, length } => {
                out.write_string(handle).write_u64(*offset).write_u32(*length);
            }
            SftpRequest::Write { handle, offset, data } => {
                out.packet.reserve(handle.len() + data.len() + 32);
                out.write_string(handle).write_u64(*offset).write_string(data);
            }
            SftpRequest::Lstat { path }
            | SftpRequest::OpenDir { path }
            | SftpRequest::Remove { path }
            | SftpRequest::RemoveDir { path }
            | SftpRequest::RealPath { path }
            | SftpRequest::Stat { path }
            | SftpRequest::ReadLink { path } => {
                out.write_string(path);
            }
            SftpRequest::SetStat { path, attributes }
            | SftpRequest::MakeDir { path, attributes } => {
                attributes.encode(out.write_string(path));
            }
            SftpRequest::FsetStat { handle, attributes } => {
                attributes.encode(out.write_string(handle))
            }
            SftpRequest::Rename { from: first, to: second }
            | SftpRequest::Symlink { first, second } => {
                out.write_string(first).write_string(second);
            }
            SftpRequest::Extended { name, body } => {
                out.write_string(name).bytes(body);
            }
            SftpRequest::Unknown { .. } => {}
        }
        out.finish(id)
    }

    fn kind(&self) -> u8 {
        match self {
            SftpRequest::Open { .. } => kind::OPEN,
            SftpRequest::Close { .. } => kind::CLOSE,
            SftpRequest::Read { .. } => kind::READ,
            SftpRequest::Write { .. } => kind::WRITE,
            SftpRequest::Lstat { .. } => kind::LSTAT,
            SftpRequest::Fstat { .. } => kind::FSTAT,
            SftpRequest::SetStat { .. } => kind::SETSTAT,
            SftpRequest::FsetStat { .. } => kind::FSETSTAT,
            SftpRequest::OpenDir { .. } => kind::OPENDIR,
            SftpRequest::ReadDir { .. } => kind::READDIR,
            SftpRequest::Remove { .. } => kind::REMOVE,
            SftpRequest::MakeDir { .. } => kind::MKDIR,
            SftpRequest::RemoveDir { .. } => kind::RMDIR,
            SftpRequest::RealPath { .. } => kind::REALPATH,
            SftpRequest::Stat { .. } => kind::STAT,
            SftpRequest::Rename { .. } => kind::RENAME,
            SftpRequest::ReadLink { .. } => kind::READLINK,
            SftpRequest::Symlink { .. } => kind::SYMLINK,
            SftpRequest::Extended { .. } => kind::EXTENDED,
            SftpRequest::Unknown { kind } => *kind,
        }
    }
}

/// Encodes the first packet that a client sends, with its version.
pub(crate) fn encode_init() -> Bytes {
    SshFieldWriter::new(kind::INIT).finish(SFTP_VERSION)
}

/// Encodes an extended request whose body is a single value.
pub(crate) fn extended(id: SftpRequestId, name: &str, body: &impl crate::wire::WireCodec) -> Bytes {
    let mut out = SshFieldWriter::new(kind::EXTENDED);
    out.write_string(name.as_bytes());
    body.encode_to(&mut out.packet);
    out.finish(id)
}

/// The error for a packet that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPacket {
    /// The number of the request, if it could be read. The request is then refused.
    pub id: Option<SftpRequestId>,
    pub reason: &'static str,
}

/// Decodes a packet without its length field.
pub fn decode_client_packet(packet: Bytes) -> Result<ClientPacket, InvalidPacket> {
    let mut fields = SshFieldReader::new(packet);
    let short = |what| InvalidPacket { id: None, reason: what };
    let kind = fields.read_u8().map_err(|_| short("the packet is empty"))?;
    let number = fields.read_u32().map_err(|_| short("the packet has no number"))?;
    if kind == kind::INIT {
        return Ok(ClientPacket::Init { version: number });
    }
    let request = request(kind, &mut fields);
    let request = request.map_err(|TruncatedField| InvalidPacket {
        id: Some(number),
        reason: "a field of the request reaches past its end",
    })?;
    Ok(ClientPacket::Request { id: number, request })
}

fn request(kind: u8, fields: &mut SshFieldReader) -> Result<SftpRequest, TruncatedField> {
    Ok(match kind {
        kind::OPEN => SftpRequest::Open {
            path: fields.read_string()?,
            flags: fields.read_u32()?,
            attributes: SftpAttributes::decode(fields)?,
        },
        kind::CLOSE => SftpRequest::Close { handle: fields.read_string()? },
        kind::READ => SftpRequest::Read {
            handle: fields.read_string()?,
            offset: fields.read_u64()?,
            length: fields.read_u32()?,
        },
        kind::WRITE => SftpRequest::Write {
            handle: fields.read_string()?,
            offset: fields.read_u64()?,
            data: fields.read_string()?,
        },
        kind::LSTAT => SftpRequest::Lstat { path: fields.read_string()? },
        kind::FSTAT => SftpRequest::Fstat { handle: fields.read_string()? },
        kind::SETSTAT => SftpRequest::SetStat {
            path: fields.read_string()?,
            attributes: SftpAttributes::decode(fields)?,
        },
        kind::FSETSTAT => SftpRequest::FsetStat {
            handle: fields.read_string()?,
            attributes: SftpAttributes::decode(fields)?,
        },
        kind::OPENDIR => SftpRequest::OpenDir { path: fields.read_string()? },
        kind::READDIR => SftpRequest::ReadDir { handle: fields.read_string()? },
        kind::REMOVE => SftpRequest::Remove { path: fields.read_string()? },
        kind::MKDIR => SftpRequest::MakeDir {
            path: fields.read_string()?,
            attributes: SftpAttributes::decode(fields)?,
        },
        kind::RMDIR => SftpRequest::RemoveDir { path: fields.read_string()? },
        kind::REALPATH => SftpRequest::RealPath { path: fields.read_string()? },
        kind::STAT => SftpRequest::Stat { path: fields.read_string()? },
        kind::RENAME => {
            SftpRequest::Rename { from: fields.read_string()?, to: fields.read_string()? }
        }
        kind::READLINK => SftpRequest::ReadLink { path: fields.read_string()? },
        kind::SYMLINK => {
            SftpRequest::Symlink { first: fields.read_string()?, second: fields.read_string()? }
        }
        kind::EXTENDED => {
            SftpRequest::Extended { name: fields.read_string()?, body: fields.read_remaining() }
        }
        kind => SftpRequest::Unknown { kind },
    })
}

/// The error for an incomplete field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedField;

/// Reads fields from the start of a packet. The fields share the memory of the packet.
#[derive(Clone, Debug)]
pub struct SshFieldReader {
    left: Bytes,
}

impl SshFieldReader {
    pub fn new(bytes: Bytes) -> Self {
        Self { left: bytes }
    }

    pub fn read_u8(&mut self) -> Result<u8, TruncatedField> {
        Ok(self.array::<1>()?[0])
    }

    pub fn read_u32(&mut self) -> Result<u32, TruncatedField> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub fn read_u64(&mut self) -> Result<u64, TruncatedField> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub fn read_string(&mut self) -> Result<Bytes, TruncatedField> {
        let length = self.read_u32()? as usize;
        if length > self.left.len() {
            return Err(TruncatedField);
        }
        Ok(self.left.split_to(length))
    }

    pub fn read_remaining(&mut self) -> Bytes {
        std::mem::take(&mut self.left)
    }

    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Maximum number of items of at least `size` bytes that can follow. Counts in packets are
    /// checked against this number.
    pub(crate) fn max_remaining_items(&self, size: usize) -> usize {
        self.left.len() / size.max(1)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TruncatedField> {
        let taken = self.left.first_chunk::<N>().copied().ok_or(TruncatedField)?;
        let _ = self.left.split_to(N);
        Ok(taken)
    }
}

/// A packet that is being built.
#[derive(Clone, Debug)]
pub struct SshFieldWriter {
    packet: BytesMut,
}

impl SshFieldWriter {
    fn new(kind: u8) -> Self {
        let mut answer = Self { packet: BytesMut::with_capacity(64) };
        answer.packet.put_bytes(0, 4);
        answer.packet.put_u8(kind);
        answer.packet.put_bytes(0, 4);
        answer
    }

    /// The first answer on a channel. It must be finished with [`SFTP_VERSION`].
    pub(super) fn version() -> Self {
        Self::new(kind::VERSION)
    }

    pub(super) fn status(code: u32, message: &str) -> Self {
        let mut answer = Self::new(kind::STATUS);
        answer.write_u32(code).write_string(message.as_bytes()).write_string(b"en");
        answer
    }

    pub(super) fn handle(handle: u32) -> Self {
        let mut answer = Self::new(kind::HANDLE);
        answer.write_string(&handle.to_be_bytes());
        answer
    }

    pub(super) fn attributes(attributes: &SftpAttributes) -> Self {
        let mut answer = Self::new(kind::ATTRS);
        attributes.encode(&mut answer);
        answer
    }

    /// A packet with names. Each name is added with [`name`](Self::name).
    pub(super) fn names(count: u32) -> Self {
        let mut answer = Self::new(kind::NAME);
        answer.write_u32(count);
        answer
    }

    pub(super) fn name(
        &mut self,
        name: &str,
        long: &str,
        attributes: &SftpAttributes,
    ) -> &mut Self {
        self.write_string(name.as_bytes()).write_string(long.as_bytes());
        attributes.encode(self);
        self
    }

    pub(super) fn extended() -> Self {
        Self::new(kind::EXTENDED_REPLY)
    }

    /// The header of a DATA packet. It must be followed by `length` bytes.
    pub(super) fn data_header(id: SftpRequestId, length: usize) -> [u8; 13] {
        let mut header = [0; 13];
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        header[..4].copy_from_slice(&length.saturating_add(9).to_be_bytes());
        header[4] = kind::DATA;
        header[5..9].copy_from_slice(&id.to_be_bytes());
        header[9..].copy_from_slice(&length.to_be_bytes());
        header
    }

    pub fn write_u8(&mut self, value: u8) -> &mut Self {
        self.packet.put_u8(value);
        self
    }

    pub fn write_u32(&mut self, value: u32) -> &mut Self {
        self.packet.put_u32(value);
        self
    }

    pub fn write_u64(&mut self, value: u64) -> &mut Self {
        self.packet.put_u64(value);
        self
    }

    /// Appends a string with its length. Strings of 4 GiB or more are truncated.
    pub fn write_string(&mut self, bytes: &[u8]) -> &mut Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.packet.put_u32(length);
        self.packet.extend_from_slice(&bytes[..length as usize]);
        self
    }

    /// Appends bytes without their length.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.packet.extend_from_slice(bytes);
        self
    }

    /// The current length of the packet in bytes, including its length field.
    pub(super) fn len(&self) -> usize {
        self.packet.len()
    }

    /// Sets the count of a [`names`](Self::names) packet. Called after the names were added.
    pub(super) fn set_count(&mut self, count: u32) {
        self.set_u32(9, count);
    }

    /// Overwrites a number at the offset `at`.
    pub(super) fn set_u32(&mut self, at: usize, value: u32) {
        self.packet[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Completes the packet as the answer to the request `id`.
    pub(super) fn finish(self, id: SftpRequestId) -> Bytes {
        self.finish_before(id, 0)
    }

    /// Like `finish`, for a packet that is followed by `more` bytes.
    pub(super) fn finish_before(mut self, id: SftpRequestId, more: usize) -> Bytes {
        self.packet[5..9].copy_from_slice(&id.to_be_bytes());
        let length = u32::try_from(self.packet.len() - 4 + more).unwrap_or(u32::MAX);
        self.packet[..4].copy_from_slice(&length.to_be_bytes());
        self.packet.freeze()
    }
}
