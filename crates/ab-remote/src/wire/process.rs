//! Commands on the wire: what is to run, how it ended, what is in force for it.

use std::collections::BTreeMap;

use ab_core::effective::{self, EffectivePolicy};
use ab_core::process::{
    Command, ExecLimits, ExecRequest, Exit, HostDirectory, MountLayout, OutputChunk,
    ProcessControl, ProcessId, ProcessInfo, Restrictions, TerminalSize,
};
use bytes::{BufMut, BytesMut};

use super::{DecodeError, Read, Wire, put_number, take_number};
use crate::sftp::packet::PacketReader;

impl Wire for Command {
    fn put(&self, out: &mut BytesMut) {
        match self {
            Command::Shell(line) => {
                out.put_u8(0);
                line.put(out);
            }
            Command::Argv(words) => {
                out.put_u8(1);
                words.put(out);
            }
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => Command::Shell(Wire::read(fields)?),
            1 => Command::Argv(Wire::read(fields)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl Wire for TerminalSize {
    fn put(&self, out: &mut BytesMut) {
        (self.columns, self.rows).put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (columns, rows) = Wire::read(fields)?;
        Ok(Self { columns, rows })
    }
}

impl Wire for ExecLimits {
    fn put(&self, out: &mut BytesMut) {
        (self.wall, self.cpu).put(out);
        for limit in [self.memory, self.processes, self.file_size, self.open_files] {
            limit.put(out);
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (wall, cpu) = Wire::read(fields)?;
        Ok(Self {
            wall,
            cpu,
            memory: Wire::read(fields)?,
            processes: Wire::read(fields)?,
            file_size: Wire::read(fields)?,
            open_files: Wire::read(fields)?,
        })
    }
}

impl Wire for HostDirectory {
    fn put(&self, out: &mut BytesMut) {
        self.path.put(out);
        put_number(out, self.access);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self { path: Wire::read(fields)?, access: take_number(fields)? })
    }
}

impl Wire for Restrictions {
    fn put(&self, out: &mut BytesMut) {
        self.hidden.put(out);
        self.read_only.put(out);
        self.binds.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            hidden: Wire::read(fields)?,
            read_only: Wire::read(fields)?,
            binds: Wire::read(fields)?,
        })
    }
}

impl Wire for ExecRequest {
    /// Other workspaces that are mounted beside this one are on the machine of whoever mounted
    /// them; the one that runs the command knows nothing of them.
    fn put(&self, out: &mut BytesMut) {
        self.command.put(out);
        self.cwd.put(out);
        let env: Vec<(String, String)> =
            self.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        env.put(out);
        put_number(out, self.stdin);
        self.terminal.put(out);
        put_number(out, self.lifetime);
        self.limits.put(out);
        self.restrictions.put(out);
        self.layout.at.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (command, cwd) = Wire::read(fields)?;
        let env: Vec<(String, String)> = Wire::read(fields)?;
        Ok(Self {
            command,
            cwd,
            env: env.into_iter().collect::<BTreeMap<_, _>>(),
            stdin: take_number(fields)?,
            input: None,
            terminal: Wire::read(fields)?,
            lifetime: take_number(fields)?,
            limits: Wire::read(fields)?,
            restrictions: Wire::read(fields)?,
            layout: MountLayout { at: Wire::read(fields)?, mounted: Vec::new() },
        })
    }
}

impl Wire for Exit {
    fn put(&self, out: &mut BytesMut) {
        (self.code, self.signal).put(out);
        put_number(out, self.cause);
        put_number(out, self.orphans);
        self.stdout_tail.put(out);
        self.stderr_tail.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (code, signal) = Wire::read(fields)?;
        Ok(Self {
            code,
            signal,
            cause: take_number(fields)?,
            orphans: take_number(fields)?,
            stdout_tail: Wire::read(fields)?,
            stderr_tail: Wire::read(fields)?,
        })
    }
}

impl Wire for ProcessId {
    fn put(&self, out: &mut BytesMut) {
        self.as_str().to_owned().put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(ProcessId::new(String::read(fields)?))
    }
}

impl Wire for ProcessInfo {
    fn put(&self, out: &mut BytesMut) {
        self.id.put(out);
        self.command.put(out);
        self.cwd.put(out);
        self.started.put(out);
        self.exit.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            id: Wire::read(fields)?,
            command: Wire::read(fields)?,
            cwd: Wire::read(fields)?,
            started: Wire::read(fields)?,
            exit: Wire::read(fields)?,
        })
    }
}

impl Wire for OutputChunk {
    fn put(&self, out: &mut BytesMut) {
        (self.sequence, self.lost).put(out);
        put_number(out, self.channel);
        self.bytes.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (sequence, lost) = Wire::read(fields)?;
        let channel = take_number(fields)?;
        Ok(Self { sequence, channel, bytes: Wire::read(fields)?, lost })
    }
}

impl Wire for ProcessControl {
    fn put(&self, out: &mut BytesMut) {
        match self {
            ProcessControl::Signal(number) => {
                out.put_u8(0);
                number.put(out);
            }
            ProcessControl::Resize(size) => {
                out.put_u8(1);
                size.put(out);
            }
            ProcessControl::EndInput => out.put_u8(2),
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => ProcessControl::Signal(Wire::read(fields)?),
            1 => ProcessControl::Resize(Wire::read(fields)?),
            2 => ProcessControl::EndInput,
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl Wire for effective::EffectiveControl {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, self.subject);
        self.asked.put(out);
        self.in_force.put(out);
        put_number(out, self.strength);
        self.mechanism.put(out);
        self.proof.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            subject: take_number(fields)?,
            asked: Wire::read(fields)?,
            in_force: Wire::read(fields)?,
            strength: take_number(fields)?,
            mechanism: Wire::read(fields)?,
            proof: Wire::read(fields)?,
        })
    }
}

impl Wire for EffectivePolicy {
    fn put(&self, out: &mut BytesMut) {
        self.isolation.is_some().put(out);
        if let Some(isolation) = &self.isolation {
            put_number(out, *isolation);
        }
        self.controls.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let isolation = if bool::read(fields)? { Some(take_number(fields)?) } else { None };
        Ok(Self { isolation, controls: Wire::read(fields)? })
    }
}
