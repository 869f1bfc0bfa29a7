//! What our client and our server say to each other about one process, on a channel of its own.
//!
//! The channel runs the subsystem [`SUBSYSTEM`]. Each side sends frames: a length, then the frame.
//! The client says first what is to run, or which process it wants to follow, and how many bytes of
//! output it has room for; the server sends no more than that until it is given more, or the process
//! is lost to that client. So a reader that takes its time holds up its own process and nothing else.
//! A command is run in the name of the connection that its channel is on, and of no other. Closing
//! the channel lets go of the process: one that is owned ends.

use ab_core::Error;
use ab_core::process::{ExecRequest, Exit, OutputChunk, ProcessControl, ProcessId};
use bytes::{BufMut, Bytes, BytesMut};

use super::call::CallNumber;
use super::{Misread, Read, Wire};
use crate::sftp::packet::Fields;

pub const SUBSYSTEM: &str = "process@agent-backend";
/// Longest frame: a command line and an environment may be long.
pub const MAX_FRAME: usize = 8 * 1024 * 1024;

/// Bytes of input that a client may send before it hears that some were taken.
pub const INPUT_ROOM: u64 = 256 * 1024;

/// What a client says.
#[derive(Clone, Debug)]
pub enum ToProcess {
    Exec {
        call: CallNumber,
        room: u64,
        request: Box<ExecRequest>,
    },
    Attach {
        id: ProcessId,
        from: u64,
        room: u64,
    },
    Input(Bytes),
    /// Nobody will say more on standard input.
    InputDropped,
    Control(ProcessControl),
    /// There is room for so many bytes more.
    Room(u64),
    /// The last frame: nobody holds the process any more. What was said before still counts.
    LetGo,
}

/// What a server says.
#[derive(Clone, Debug)]
pub enum FromProcess {
    /// It runs, or ran; `input` if it takes some.
    Began {
        id: ProcessId,
        input: bool,
    },
    Output(OutputChunk),
    /// So many bytes of input were taken.
    Room(u64),
    /// How it ended, whether its output was read or not; nothing if nobody knows.
    Ended(Option<Exit>),
    /// The last frame: there is no more output.
    Over,
    /// The last frame: it did not come to that.
    Refused(Error),
}

/// A frame with its length in front.
pub fn framed(frame: &impl Wire) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u32(0);
    frame.put(&mut out);
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.freeze()
}

impl Wire for ToProcess {
    fn put(&self, out: &mut BytesMut) {
        match self {
            ToProcess::Exec { call, room, request } => {
                out.put_u8(0);
                call.put(out);
                room.put(out);
                request.put(out);
            }
            ToProcess::Attach { id, from, room } => {
                out.put_u8(1);
                id.put(out);
                (*from, *room).put(out);
            }
            ToProcess::Input(bytes) => {
                out.put_u8(2);
                bytes.put(out);
            }
            ToProcess::InputDropped => out.put_u8(3),
            ToProcess::Control(control) => {
                out.put_u8(4);
                control.put(out);
            }
            ToProcess::Room(bytes) => {
                out.put_u8(5);
                bytes.put(out);
            }
            ToProcess::LetGo => out.put_u8(6),
        }
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => ToProcess::Exec {
                call: Wire::read(fields)?,
                room: Wire::read(fields)?,
                request: Box::new(Wire::read(fields)?),
            },
            1 => ToProcess::Attach {
                id: Wire::read(fields)?,
                from: Wire::read(fields)?,
                room: Wire::read(fields)?,
            },
            2 => ToProcess::Input(Wire::read(fields)?),
            3 => ToProcess::InputDropped,
            4 => ToProcess::Control(Wire::read(fields)?),
            5 => ToProcess::Room(Wire::read(fields)?),
            6 => ToProcess::LetGo,
            _ => return Err(Misread::Senseless),
        })
    }
}

impl Wire for FromProcess {
    fn put(&self, out: &mut BytesMut) {
        match self {
            FromProcess::Began { id, input } => {
                out.put_u8(0);
                id.put(out);
                input.put(out);
            }
            FromProcess::Output(output) => {
                out.put_u8(1);
                output.put(out);
            }
            FromProcess::Room(bytes) => {
                out.put_u8(4);
                bytes.put(out);
            }
            FromProcess::Ended(exit) => {
                out.put_u8(2);
                exit.put(out);
            }
            FromProcess::Over => out.put_u8(5),
            FromProcess::Refused(error) => {
                out.put_u8(3);
                error.put(out);
            }
        }
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => FromProcess::Began { id: Wire::read(fields)?, input: Wire::read(fields)? },
            1 => FromProcess::Output(Wire::read(fields)?),
            2 => FromProcess::Ended(Wire::read(fields)?),
            3 => FromProcess::Refused(Wire::read(fields)?),
            4 => FromProcess::Room(Wire::read(fields)?),
            5 => FromProcess::Over,
            _ => return Err(Misread::Senseless),
        })
    }
}
