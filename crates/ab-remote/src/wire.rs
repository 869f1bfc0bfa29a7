//! What our own client and server tell each other, as bytes.
//!
//! Built of the fields of SFTP: `u8`, `u32` and `u64` in network order, and strings with their
//! length in front. A value of a closed list is its number (`numbers`); something that may be absent
//! begins with 0 or 1; a list begins with how many there are. Every type reads back what it writes,
//! and what it reads reaches past nothing and is believed in nothing: a property test and a fuzz
//! target see to that. Pure.

pub mod call;
mod error;
mod files;
pub mod frame;
mod numbers;
mod process;
mod search;

use std::time::{Duration, SystemTime};

use ab_core::path::RuleSet;
use ab_core::{MAX_RESTRICTIONS, PathRules, WsPath};
use bytes::{BufMut, Bytes, BytesMut};

use crate::sftp::packet::{PacketReader, TruncatedField};
use numbers::Numbered;

/// Fences of one path; scopes are not nested deeper.
const MAX_FENCES: usize = 64;
/// Sets of rules of one path, one for each restricted handle that it came through.
const MAX_RULE_SETS: usize = 64;
/// In the number of fences: rules follow the path.
const HAS_RULES: u32 = 1 << 31;
const MAX_COUNT: u32 = HAS_RULES - 1;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A field is not there as a whole.
    Truncated,
    /// A field has a value that means nothing.
    Invalid,
}

impl From<TruncatedField> for DecodeError {
    fn from(TruncatedField: TruncatedField) -> Self {
        DecodeError::Truncated
    }
}

type Read<T> = Result<T, DecodeError>;

/// Something that can be written to the wire and read from it.
pub trait Wire: Sized {
    fn put(&self, out: &mut BytesMut);
    fn read(fields: &mut PacketReader) -> Read<Self>;
}

/// A value as bytes of its own.
pub fn encode(value: &impl Wire) -> Bytes {
    let mut out = BytesMut::new();
    value.put(&mut out);
    out.freeze()
}

/// Reads a value that is all there is.
pub fn decode<T: Wire>(bytes: Bytes) -> Read<T> {
    let mut fields = PacketReader::new(bytes);
    let value = T::read(&mut fields)?;
    if fields.is_empty() { Ok(value) } else { Err(DecodeError::Invalid) }
}

/// Writes the number of a value of a closed list.
pub(crate) fn put_number<T: Numbered>(out: &mut BytesMut, value: T) {
    out.put_u8(value.number());
}

pub(crate) fn take_number<T: Numbered>(fields: &mut PacketReader) -> Read<T> {
    T::by_number(fields.u8()?).ok_or(DecodeError::Invalid)
}

impl Wire for () {
    fn put(&self, _: &mut BytesMut) {}

    fn read(_: &mut PacketReader) -> Read<Self> {
        Ok(())
    }
}

impl Wire for bool {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8((*self).into());
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        match fields.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid),
        }
    }
}

impl Wire for u32 {
    fn put(&self, out: &mut BytesMut) {
        out.put_u32(*self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(fields.u32()?)
    }
}

impl Wire for u64 {
    fn put(&self, out: &mut BytesMut) {
        out.put_u64(*self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(fields.u64()?)
    }
}

impl Wire for u128 {
    fn put(&self, out: &mut BytesMut) {
        out.put_u128(*self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok((u128::from(fields.u64()?) << 64) | u128::from(fields.u64()?))
    }
}

impl Wire for i32 {
    fn put(&self, out: &mut BytesMut) {
        out.put_i32(*self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(fields.u32()?.cast_signed())
    }
}

impl Wire for u16 {
    fn put(&self, out: &mut BytesMut) {
        out.put_u32((*self).into());
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        u16::try_from(fields.u32()?).map_err(|_| DecodeError::Invalid)
    }
}

impl Wire for usize {
    fn put(&self, out: &mut BytesMut) {
        out.put_u64(*self as u64);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        // What does not fit here is more than there can be.
        Ok(usize::try_from(fields.u64()?).unwrap_or(usize::MAX))
    }
}

impl Wire for Bytes {
    fn put(&self, out: &mut BytesMut) {
        put_string(out, self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(fields.string()?)
    }
}

impl Wire for String {
    fn put(&self, out: &mut BytesMut) {
        put_string(out, self.as_bytes());
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        String::from_utf8(fields.string()?.into()).map_err(|_| DecodeError::Invalid)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut BytesMut) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        if bool::read(fields)? { Ok(Some(T::read(fields)?)) } else { Ok(None) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut BytesMut) {
        out.put_u32(u32::try_from(self.len()).unwrap_or(u32::MAX));
        self.iter().for_each(|item| item.put(out));
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let count = fields.u32()? as usize;
        // No item is shorter than a byte.
        if count > fields.capacity_for(1) {
            return Err(DecodeError::Truncated);
        }
        // A count is not believed, so memory is taken as items are read.
        let mut items = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            items.push(T::read(fields)?);
        }
        Ok(items)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
        self.1.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok((A::read(fields)?, B::read(fields)?))
    }
}

impl Wire for Duration {
    fn put(&self, out: &mut BytesMut) {
        out.put_u64(self.as_secs());
        out.put_u32(self.subsec_nanos());
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (seconds, nanos) = (fields.u64()?, fields.u32()?);
        if nanos < 1_000_000_000 {
            Ok(Duration::new(seconds, nanos))
        } else {
            Err(DecodeError::Invalid)
        }
    }
}

impl Wire for SystemTime {
    /// Before or after 1970, and by how much.
    fn put(&self, out: &mut BytesMut) {
        match self.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => (false, after).put(out),
            Err(before) => (true, before.duration()).put(out),
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (before, distance) = <(bool, Duration)>::read(fields)?;
        let time = if before {
            SystemTime::UNIX_EPOCH.checked_sub(distance)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(distance)
        };
        time.ok_or(DecodeError::Invalid)
    }
}

impl Wire for WsPath {
    /// The parts that end in a fence, then what is below them, then the rules, if there are any.
    fn put(&self, out: &mut BytesMut) {
        let fences = self.fenced_segments();
        let rules = if self.has_rules() { HAS_RULES } else { 0 };
        out.put_u32(u32::try_from(fences.len()).unwrap_or(MAX_COUNT).min(MAX_COUNT) | rules);
        fences.iter().for_each(|part| put_string(out, part.as_bytes()));
        put_string(out, self.below_fence().as_bytes());
        if self.has_rules() {
            out.put_u32(u32::try_from(self.rules().len()).unwrap_or(u32::MAX));
            self.rules().iter().for_each(|set| set.put(out));
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let head = fields.u32()?;
        let count = (head & MAX_COUNT) as usize;
        if count > MAX_FENCES {
            return Err(DecodeError::Invalid);
        }
        let mut path = WsPath::root();
        for _ in 0..count {
            path = path.join(&part(fields)?).fenced();
        }
        path = path.join(&part(fields)?);
        if head & HAS_RULES == 0 {
            return Ok(path);
        }
        let sets: Vec<RuleSet> = Vec::read(fields)?;
        if sets.is_empty() || sets.len() > MAX_RULE_SETS || sets.iter().any(RuleSet::is_empty) {
            return Err(DecodeError::Invalid);
        }
        path.with_rule_sets(sets).ok_or(DecodeError::Invalid)
    }
}

impl Wire for RuleSet {
    fn put(&self, out: &mut BytesMut) {
        self.anchor.put(out);
        self.hidden.put(out);
        self.read_only.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let anchor = usize::read(fields)?;
        let (hidden, read_only) = (paths(fields)?, paths(fields)?);
        Ok(Self { anchor, hidden, read_only })
    }
}

/// Paths from the root of a handle; empty for that root.
fn paths(fields: &mut PacketReader) -> Read<Vec<String>> {
    let count = fields.u32()? as usize;
    if count > MAX_RESTRICTIONS {
        return Err(DecodeError::Invalid);
    }
    (0..count).map(|_| Ok(part(fields)?.as_str().to_owned())).collect()
}

fn part(fields: &mut PacketReader) -> Read<WsPath> {
    let text = fields.string()?;
    if text.is_empty() {
        Ok(WsPath::root())
    } else {
        PathRules::lenient()
            .with_reserved_names()
            .parse_bytes(&text)
            .map_err(|_| DecodeError::Invalid)
    }
}

fn put_string(out: &mut BytesMut, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.put_u32(length);
    out.extend_from_slice(&bytes[..length as usize]);
}
