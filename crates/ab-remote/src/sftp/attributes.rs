//! File attributes of SFTP, and their conversion to and from those of a workspace.

use std::time::{Duration, SystemTime};

use ab_core::metadata::{FileKind, Stat};

use super::packet::{SshFieldReader, SshFieldWriter, TruncatedField};

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;

/// The permission bits that are reported for workspaces without permission bits.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

/// The attributes of a file that a server reports or a client requests. An absent attribute is
/// unknown, or must not be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SftpAttributes {
    pub size: Option<u64>,
    pub owner: Option<(u32, u32)>,
    /// The file type and the permission bits, as in `st_mode`.
    pub mode: Option<u32>,
    /// The access time and the modification time, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

impl SftpAttributes {
    pub(crate) fn decode(fields: &mut SshFieldReader) -> Result<Self, TruncatedField> {
        let flags = fields.read_u32()?;
        let mut attributes = Self::default();
        if flags & SIZE != 0 {
            attributes.size = Some(fields.read_u64()?);
        }
        if flags & OWNER != 0 {
            attributes.owner = Some((fields.read_u32()?, fields.read_u32()?));
        }
        if flags & PERMISSIONS != 0 {
            attributes.mode = Some(fields.read_u32()?);
        }
        if flags & TIMES != 0 {
            attributes.times = Some((fields.read_u32()?, fields.read_u32()?));
        }
        if flags & EXTENDED != 0 {
            // No extensions are supported, so skip them. Their number is limited by the length of
            // the packet.
            for _ in 0..fields.read_u32()? {
                fields.read_string()?;
                fields.read_string()?;
            }
        }
        Ok(attributes)
    }

    pub(super) fn encode(&self, answer: &mut SshFieldWriter) {
        let mut flags = 0;
        for (flag, there) in [
            (SIZE, self.size.is_some()),
            (OWNER, self.owner.is_some()),
            (PERMISSIONS, self.mode.is_some()),
            (TIMES, self.times.is_some()),
        ] {
            if there {
                flags |= flag;
            }
        }
        answer.write_u32(flags);
        if let Some(size) = self.size {
            answer.write_u64(size);
        }
        if let Some((user, group)) = self.owner {
            answer.write_u32(user).write_u32(group);
        }
        if let Some(mode) = self.mode {
            answer.write_u32(mode);
        }
        if let Some((accessed, modified)) = self.times {
            answer.write_u32(accessed).write_u32(modified);
        }
    }

    pub(super) fn of(stat: &Stat) -> Self {
        let modified = seconds(stat.modified);
        Self {
            size: Some(stat.size),
            owner: None,
            mode: Some(mode(stat)),
            times: Some((stat.accessed.map_or(modified, seconds), modified)),
        }
    }

    /// The requested access and modification times.
    pub(super) fn wanted_times(&self) -> (Option<SystemTime>, Option<SystemTime>) {
        let time = |seconds: u32| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into());
        (self.times.map(|times| time(times.0)), self.times.map(|times| time(times.1)))
    }
}

/// The file type and the permission bits, as in `st_mode`.
fn mode(stat: &Stat) -> u32 {
    let (kind, default) = match stat.kind {
        FileKind::File => (0o100_000, FILE_MODE),
        FileKind::Dir => (0o040_000, DIR_MODE),
        FileKind::Symlink => (0o120_000, 0o777),
        // Other kinds are reported as a FIFO, because clients do not open FIFOs.
        FileKind::Other => (0o010_000, FILE_MODE),
    };
    kind | stat.mode.unwrap_or(default)
}

/// Seconds since 1970, limited to the 32 bits of SFTP version 3.
pub(super) fn seconds(time: SystemTime) -> u32 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
