//! The encoding of the protocol between agent-backend clients and servers.
//!
//! It uses the field types of SFTP: `u8`, `u32` and `u64` in network byte order, and strings with a
//! length prefix. A value of a closed list is encoded as its number (see `numbers`). An optional
//! value begins with 0 or 1, and a list begins with its count. Every type can decode what it
//! encodes. Decoding never reads beyond the packet and does not trust any count. A property test
//! and a fuzz target check this. No I/O is done here.

pub mod call;
mod error;
mod files;
pub mod frame;
mod numbers;
mod process;
mod search;

use std::time::{Duration, SystemTime};

use ab_core::path::AccessRulesBelowPrefix;
use ab_core::{MAX_PATH_RESTRICTIONS, PathParser, WsPath};
use bytes::{BufMut, Bytes, BytesMut};

use crate::sftp::packet::{SshFieldReader, TruncatedField};
use numbers::Numbered;

/// Maximum number of scope roots of one path. This limits the nesting of scopes.
const MAX_SCOPE_ROOTS: usize = 64;
/// Maximum number of sets of access rules of one path. There is one set for each restricted handle
/// through which the path came.
const MAX_RULE_SETS: usize = 64;
/// A flag in the encoded number of scope roots. If it is set, access rules follow the path.
const HAS_RULES: u32 = 1 << 31;
const MAX_COUNT: u32 = HAS_RULES - 1;

/// The error for bytes that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A field is incomplete.
    Truncated,
    /// A field has an invalid value.
    Invalid,
}

impl From<TruncatedField> for DecodeError {
    fn from(TruncatedField: TruncatedField) -> Self {
        DecodeError::Truncated
    }
}

type DecodeResult<T> = Result<T, DecodeError>;

/// A type that can be encoded and decoded.
pub trait WireCodec: Sized {
    fn encode_to(&self, out: &mut BytesMut);
    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self>;
}

/// Encodes a value into new bytes.
pub fn encode(value: &impl WireCodec) -> Bytes {
    let mut out = BytesMut::new();
    value.encode_to(&mut out);
    out.freeze()
}

/// Decodes a value. It must use all of `bytes`.
pub fn decode<T: WireCodec>(bytes: Bytes) -> DecodeResult<T> {
    let mut fields = SshFieldReader::new(bytes);
    let value = T::decode_from(&mut fields)?;
    if fields.is_empty() { Ok(value) } else { Err(DecodeError::Invalid) }
}

/// Writes the number that stands for a value of a closed list.
pub(crate) fn put_number<T: Numbered>(out: &mut BytesMut, value: T) {
    out.put_u8(value.number());
}

pub(crate) fn take_number<T: Numbered>(fields: &mut SshFieldReader) -> DecodeResult<T> {
    T::by_number(fields.read_u8()?).ok_or(DecodeError::Invalid)
}

impl WireCodec for () {
    fn encode_to(&self, _: &mut BytesMut) {}

    fn decode_from(_: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(())
    }
}

impl WireCodec for bool {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u8((*self).into());
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        match fields.read_u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid),
        }
    }
}

impl WireCodec for u32 {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u32(*self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(fields.read_u32()?)
    }
}

impl WireCodec for u64 {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u64(*self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(fields.read_u64()?)
    }
}

impl WireCodec for u128 {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u128(*self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok((u128::from(fields.read_u64()?) << 64) | u128::from(fields.read_u64()?))
    }
}

impl WireCodec for i32 {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_i32(*self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(fields.read_u32()?.cast_signed())
    }
}

impl WireCodec for u16 {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u32((*self).into());
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        u16::try_from(fields.read_u32()?).map_err(|_| DecodeError::Invalid)
    }
}

impl WireCodec for usize {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u64(*self as u64);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        // On a 32-bit machine, larger values are reduced to the maximum.
        Ok(usize::try_from(fields.read_u64()?).unwrap_or(usize::MAX))
    }
}

impl WireCodec for Bytes {
    fn encode_to(&self, out: &mut BytesMut) {
        put_string(out, self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(fields.read_string()?)
    }
}

impl WireCodec for String {
    fn encode_to(&self, out: &mut BytesMut) {
        put_string(out, self.as_bytes());
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        String::from_utf8(fields.read_string()?.into()).map_err(|_| DecodeError::Invalid)
    }
}

impl<T: WireCodec> WireCodec for Option<T> {
    fn encode_to(&self, out: &mut BytesMut) {
        self.is_some().encode_to(out);
        if let Some(value) = self {
            value.encode_to(out);
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        if bool::decode_from(fields)? { Ok(Some(T::decode_from(fields)?)) } else { Ok(None) }
    }
}

impl<T: WireCodec> WireCodec for Vec<T> {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u32(u32::try_from(self.len()).unwrap_or(u32::MAX));
        self.iter().for_each(|item| item.encode_to(out));
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let count = fields.read_u32()? as usize;
        // Every item has at least one byte.
        if count > fields.max_remaining_items(1) {
            return Err(DecodeError::Truncated);
        }
        // The count is not trusted, so memory is allocated as items are read.
        let mut items = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            items.push(T::decode_from(fields)?);
        }
        Ok(items)
    }
}

impl<A: WireCodec, B: WireCodec> WireCodec for (A, B) {
    fn encode_to(&self, out: &mut BytesMut) {
        self.0.encode_to(out);
        self.1.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok((A::decode_from(fields)?, B::decode_from(fields)?))
    }
}

impl WireCodec for Duration {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u64(self.as_secs());
        out.put_u32(self.subsec_nanos());
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (seconds, nanos) = (fields.read_u64()?, fields.read_u32()?);
        if nanos < 1_000_000_000 {
            Ok(Duration::new(seconds, nanos))
        } else {
            Err(DecodeError::Invalid)
        }
    }
}

impl WireCodec for SystemTime {
    /// Writes whether the time is before 1970, and its distance from 1970.
    fn encode_to(&self, out: &mut BytesMut) {
        match self.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => (false, after).encode_to(out),
            Err(before) => (true, before.duration()).encode_to(out),
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (before, distance) = <(bool, Duration)>::decode_from(fields)?;
        let time = if before {
            SystemTime::UNIX_EPOCH.checked_sub(distance)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(distance)
        };
        time.ok_or(DecodeError::Invalid)
    }
}

impl WireCodec for WsPath {
    /// Writes the parts that end at scope roots, then the rest of the path, and then the access
    /// rules, if there are any.
    fn encode_to(&self, out: &mut BytesMut) {
        let scope_roots = self.scope_root_parts();
        let rules = if self.has_access_rules() { HAS_RULES } else { 0 };
        out.put_u32(u32::try_from(scope_roots.len()).unwrap_or(MAX_COUNT).min(MAX_COUNT) | rules);
        scope_roots.iter().for_each(|part| put_string(out, part.as_bytes()));
        put_string(out, self.part_below_scope_root().as_bytes());
        if self.has_access_rules() {
            out.put_u32(u32::try_from(self.access_rules().len()).unwrap_or(u32::MAX));
            self.access_rules().iter().for_each(|set| set.encode_to(out));
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let head = fields.read_u32()?;
        let count = (head & MAX_COUNT) as usize;
        if count > MAX_SCOPE_ROOTS {
            return Err(DecodeError::Invalid);
        }
        let mut path = WsPath::root();
        for _ in 0..count {
            path = path.join(&part(fields)?).into_scope_root();
        }
        path = path.join(&part(fields)?);
        if head & HAS_RULES == 0 {
            return Ok(path);
        }
        let sets: Vec<AccessRulesBelowPrefix> = Vec::decode_from(fields)?;
        if sets.is_empty()
            || sets.len() > MAX_RULE_SETS
            || sets.iter().any(AccessRulesBelowPrefix::is_empty)
        {
            return Err(DecodeError::Invalid);
        }
        path.try_replace_access_rules(sets).ok_or(DecodeError::Invalid)
    }
}

impl WireCodec for AccessRulesBelowPrefix {
    fn encode_to(&self, out: &mut BytesMut) {
        self.prefix_bytes.encode_to(out);
        match self.hidden_by_filter {
            // A filter cannot be sent. Hide the whole workspace instead, so that the peer refuses
            // the call and never performs it without the filter.
            Some(_) => vec![String::new()].encode_to(out),
            None => self.hidden.encode_to(out),
        }
        self.read_only.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let anchor = usize::decode_from(fields)?;
        let (hidden, read_only) = (paths(fields)?, paths(fields)?);
        Ok(Self { prefix_bytes: anchor, hidden, read_only, hidden_by_filter: None })
    }
}

/// Reads paths that are relative to the root of a handle. The empty path stands for this root.
fn paths(fields: &mut SshFieldReader) -> DecodeResult<Vec<String>> {
    let count = fields.read_u32()? as usize;
    if count > MAX_PATH_RESTRICTIONS {
        return Err(DecodeError::Invalid);
    }
    (0..count).map(|_| Ok(part(fields)?.as_str().to_owned())).collect()
}

fn part(fields: &mut SshFieldReader) -> DecodeResult<WsPath> {
    let text = fields.read_string()?;
    if text.is_empty() {
        Ok(WsPath::root())
    } else {
        PathParser::lenient()
            .allow_reserved_names()
            .parse_bytes(&text)
            .map_err(|_| DecodeError::Invalid)
    }
}

fn put_string(out: &mut BytesMut, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.put_u32(length);
    out.extend_from_slice(&bytes[..length as usize]);
}
