//! Parses the answers of an SFTP server. An invalid packet is an error. Does no I/O.

use ab_core::Error;
use bytes::Bytes;

use crate::sftp::SftpAttributes;
use crate::sftp::packet::{SshFieldReader, TruncatedField, kind};
use crate::wire;

/// Maximum number of names that are read from one READDIR answer, even if its count is larger.
const MAX_NAMES: usize = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Status(Status),
    Handle(Bytes),
    Data(Bytes),
    Names(Vec<Name>),
    Attributes(SftpAttributes),
    Extended(Bytes),
}

#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) code: u32,
    pub(crate) message: String,
    /// The complete error. Only agent-backend servers send it.
    pub(crate) error: Option<Error>,
}

#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) name: Bytes,
    pub(crate) attributes: SftpAttributes,
}

/// The first packet of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub(crate) version: u32,
    pub(crate) extensions: Vec<(Bytes, Bytes)>,
}

impl Version {
    pub(crate) fn has(&self, name: &str, version: &str) -> bool {
        self.extensions
            .iter()
            .any(|(known, its)| known == name.as_bytes() && its == version.as_bytes())
    }

    /// The version of an extension. `None` if the server does not offer it.
    pub(crate) fn of(&self, name: &str) -> Option<String> {
        let mut named = self.extensions.iter().filter(|(known, _)| known == name.as_bytes());
        named.next().map(|(_, its)| String::from_utf8_lossy(its).into_owned())
    }
}

/// A parsed packet from a server.
pub(crate) enum Arrived {
    Version(Version),
    Reply(u32, Reply),
}

pub(crate) fn decode(packet: Bytes) -> Result<Arrived, TruncatedField> {
    let mut fields = SshFieldReader::new(packet);
    let fields = &mut fields;
    let (what, number) = (fields.read_u8()?, fields.read_u32()?);
    if what == kind::VERSION {
        let mut version = Version { version: number, extensions: Vec::new() };
        while !fields.is_empty() {
            version.extensions.push((fields.read_string()?, fields.read_string()?));
        }
        return Ok(Arrived::Version(version));
    }
    let reply = match what {
        kind::STATUS => Reply::Status(status(fields)?),
        kind::HANDLE => Reply::Handle(fields.read_string()?),
        kind::DATA => Reply::Data(fields.read_string()?),
        kind::NAME => {
            let count = (fields.read_u32()? as usize).min(MAX_NAMES);
            if count > fields.max_remaining_items(12) {
                return Err(TruncatedField);
            }
            let mut names = Vec::with_capacity(count.min(1024));
            for _ in 0..count {
                let (name, _long) = (fields.read_string()?, fields.read_string()?);
                // Copy the name, so that it does not keep the memory of the whole packet alive.
                let name = Bytes::copy_from_slice(&name);
                names.push(Name { name, attributes: SftpAttributes::decode(fields)? });
            }
            Reply::Names(names)
        }
        kind::ATTRS => Reply::Attributes(SftpAttributes::decode(fields)?),
        kind::EXTENDED_REPLY => Reply::Extended(fields.read_remaining()),
        _ => return Err(TruncatedField),
    };
    Ok(Arrived::Reply(number, reply))
}

fn status(fields: &mut SshFieldReader) -> Result<Status, TruncatedField> {
    let code = fields.read_u32()?;
    // Some old servers omit the remaining fields.
    let text = |fields: &mut SshFieldReader| fields.read_string().unwrap_or_default();
    let message = String::from_utf8_lossy(&text(fields)).into_owned();
    let _language = text(fields);
    let error = if fields.is_empty() { None } else { wire::decode(fields.read_string()?).ok() };
    Ok(Status { code, message, error })
}
