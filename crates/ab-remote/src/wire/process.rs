//! The encoding of commands, their exits and their effective policy.

use std::collections::BTreeMap;

use ab_core::effective_policy::{self, EffectivePolicy};
use ab_core::process::{
    Command, ExecLimits, ExecRequest, HostDirectory, MountLayout, OutputChunk, PathRestrictions,
    ProcessControlMessage, ProcessExit, ProcessId, ProcessInfo, StderrMode, TerminalSize,
};
use bytes::{BufMut, BytesMut};

use super::{DecodeError, DecodeResult, WireCodec, put_number, take_number};
use crate::sftp::packet::SshFieldReader;

impl WireCodec for Command {
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            Command::Shell(line) => {
                out.put_u8(0);
                line.encode_to(out);
            }
            Command::Argv(words) => {
                out.put_u8(1);
                words.encode_to(out);
            }
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(match fields.read_u8()? {
            0 => Command::Shell(WireCodec::decode_from(fields)?),
            1 => Command::Argv(WireCodec::decode_from(fields)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for TerminalSize {
    fn encode_to(&self, out: &mut BytesMut) {
        (self.columns, self.rows).encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (columns, rows) = WireCodec::decode_from(fields)?;
        Ok(Self { columns, rows })
    }
}

impl WireCodec for ExecLimits {
    fn encode_to(&self, out: &mut BytesMut) {
        (self.wall_time, self.cpu).encode_to(out);
        for limit in [self.memory, self.processes, self.file_size, self.open_files] {
            limit.encode_to(out);
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (wall, cpu) = WireCodec::decode_from(fields)?;
        Ok(Self {
            wall_time: wall,
            cpu,
            memory: WireCodec::decode_from(fields)?,
            processes: WireCodec::decode_from(fields)?,
            file_size: WireCodec::decode_from(fields)?,
            open_files: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for HostDirectory {
    fn encode_to(&self, out: &mut BytesMut) {
        self.path.encode_to(out);
        put_number(out, self.access);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self { path: WireCodec::decode_from(fields)?, access: take_number(fields)? })
    }
}

impl WireCodec for PathRestrictions {
    fn encode_to(&self, out: &mut BytesMut) {
        self.hidden.encode_to(out);
        self.read_only.encode_to(out);
        self.host_directories.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            hidden: WireCodec::decode_from(fields)?,
            read_only: WireCodec::decode_from(fields)?,
            host_directories: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for ExecRequest {
    /// Does not encode mounted workspaces, because they are directories of the client's machine.
    fn encode_to(&self, out: &mut BytesMut) {
        self.command.encode_to(out);
        self.cwd.encode_to(out);
        let env: Vec<(String, String)> =
            self.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        env.encode_to(out);
        put_number(out, self.stdin);
        self.terminal.encode_to(out);
        put_number(out, self.lifetime);
        self.limits.encode_to(out);
        self.restrictions.encode_to(out);
        self.mount_layout.scope_path.encode_to(out);
        // This must be the last field of the message, because peers that do not know the field send
        // requests without it.
        if self.stderr != StderrMode::Separate {
            put_number(out, self.stderr);
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (command, cwd) = WireCodec::decode_from(fields)?;
        let env: Vec<(String, String)> = WireCodec::decode_from(fields)?;
        Ok(Self {
            command,
            cwd,
            env: env.into_iter().collect::<BTreeMap<_, _>>(),
            stdin: take_number(fields)?,
            stdin_for_guards: None,
            terminal: WireCodec::decode_from(fields)?,
            lifetime: take_number(fields)?,
            limits: WireCodec::decode_from(fields)?,
            restrictions: WireCodec::decode_from(fields)?,
            mount_layout: MountLayout {
                scope_path: WireCodec::decode_from(fields)?,
                mounted: Vec::new(),
            },
            stderr: if fields.is_empty() { StderrMode::Separate } else { take_number(fields)? },
        })
    }
}

impl WireCodec for ProcessExit {
    fn encode_to(&self, out: &mut BytesMut) {
        (self.code, self.signal).encode_to(out);
        put_number(out, self.cause);
        put_number(out, self.leftover_processes);
        self.stdout_tail.encode_to(out);
        self.stderr_tail.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (code, signal) = WireCodec::decode_from(fields)?;
        Ok(Self {
            code,
            signal,
            cause: take_number(fields)?,
            leftover_processes: take_number(fields)?,
            stdout_tail: WireCodec::decode_from(fields)?,
            stderr_tail: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for ProcessId {
    fn encode_to(&self, out: &mut BytesMut) {
        self.as_str().to_owned().encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(ProcessId::new(String::decode_from(fields)?))
    }
}

impl WireCodec for ProcessInfo {
    fn encode_to(&self, out: &mut BytesMut) {
        self.id.encode_to(out);
        self.command.encode_to(out);
        self.cwd.encode_to(out);
        self.started.encode_to(out);
        self.exit.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            id: WireCodec::decode_from(fields)?,
            command: WireCodec::decode_from(fields)?,
            cwd: WireCodec::decode_from(fields)?,
            started: WireCodec::decode_from(fields)?,
            exit: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for OutputChunk {
    fn encode_to(&self, out: &mut BytesMut) {
        (self.offset, self.lost_bytes_before).encode_to(out);
        put_number(out, self.channel);
        self.bytes.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (sequence, lost) = WireCodec::decode_from(fields)?;
        let channel = take_number(fields)?;
        Ok(Self {
            offset: sequence,
            channel,
            bytes: WireCodec::decode_from(fields)?,
            lost_bytes_before: lost,
        })
    }
}

impl WireCodec for ProcessControlMessage {
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            ProcessControlMessage::Signal(number) => {
                out.put_u8(0);
                number.encode_to(out);
            }
            ProcessControlMessage::Resize(size) => {
                out.put_u8(1);
                size.encode_to(out);
            }
            ProcessControlMessage::CloseStdin => out.put_u8(2),
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(match fields.read_u8()? {
            0 => ProcessControlMessage::Signal(WireCodec::decode_from(fields)?),
            1 => ProcessControlMessage::Resize(WireCodec::decode_from(fields)?),
            2 => ProcessControlMessage::CloseStdin,
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for effective_policy::EffectivePolicyControl {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, self.kind);
        self.requested.encode_to(out);
        self.in_force.encode_to(out);
        put_number(out, self.strength);
        self.mechanism.encode_to(out);
        self.proof.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            kind: take_number(fields)?,
            requested: WireCodec::decode_from(fields)?,
            in_force: WireCodec::decode_from(fields)?,
            strength: take_number(fields)?,
            mechanism: WireCodec::decode_from(fields)?,
            proof: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for EffectivePolicy {
    fn encode_to(&self, out: &mut BytesMut) {
        self.isolation.is_some().encode_to(out);
        if let Some(isolation) = &self.isolation {
            put_number(out, *isolation);
        }
        self.controls.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let isolation = if bool::decode_from(fields)? { Some(take_number(fields)?) } else { None };
        Ok(Self { isolation, controls: WireCodec::decode_from(fields)? })
    }
}
