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
use super::{DecodeError, Read, Wire};
use crate::sftp::packet::PacketReader;

pub const SUBSYSTEM: &str = "process@agent-backend";
/// Longest frame: a command line and an environment may be long.
pub const MAX_FRAME: usize = 8 * 1024 * 1024;

/// Bytes of input that a client may send before it hears that some were taken.
pub const INPUT_WINDOW: u64 = 256 * 1024;

/// What a client says.
#[derive(Clone, Debug)]
pub enum ClientFrame {
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
    Window(u64),
    /// The last frame: nobody holds the process any more. What was said before still counts.
    Release,
}

/// What a server says.
#[derive(Clone, Debug)]
pub enum ServerFrame {
    /// It runs, or ran; `input` if it takes some.
    Started {
        id: ProcessId,
        input: bool,
    },
    Output(OutputChunk),
    /// So many bytes of input were taken.
    Window(u64),
    /// How it ended, whether its output was read or not; nothing if nobody knows.
    Ended(Option<Exit>),
    /// The last frame: there is no more output.
    OutputEnd,
    /// The last frame: it did not come to that.
    Refused(Error),
}

/// A frame with its length in front.
pub fn encode_frame(frame: &impl Wire) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u32(0);
    frame.put(&mut out);
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.freeze()
}

impl Wire for ClientFrame {
    fn put(&self, out: &mut BytesMut) {
        match self {
            ClientFrame::Exec { call, room, request } => {
                out.put_u8(0);
                call.put(out);
                room.put(out);
                request.put(out);
            }
            ClientFrame::Attach { id, from, room } => {
                out.put_u8(1);
                id.put(out);
                (*from, *room).put(out);
            }
            ClientFrame::Input(bytes) => {
                out.put_u8(2);
                bytes.put(out);
            }
            ClientFrame::InputDropped => out.put_u8(3),
            ClientFrame::Control(control) => {
                out.put_u8(4);
                control.put(out);
            }
            ClientFrame::Window(bytes) => {
                out.put_u8(5);
                bytes.put(out);
            }
            ClientFrame::Release => out.put_u8(6),
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => ClientFrame::Exec {
                call: Wire::read(fields)?,
                room: Wire::read(fields)?,
                request: Box::new(Wire::read(fields)?),
            },
            1 => ClientFrame::Attach {
                id: Wire::read(fields)?,
                from: Wire::read(fields)?,
                room: Wire::read(fields)?,
            },
            2 => ClientFrame::Input(Wire::read(fields)?),
            3 => ClientFrame::InputDropped,
            4 => ClientFrame::Control(Wire::read(fields)?),
            5 => ClientFrame::Window(Wire::read(fields)?),
            6 => ClientFrame::Release,
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl Wire for ServerFrame {
    fn put(&self, out: &mut BytesMut) {
        match self {
            ServerFrame::Started { id, input } => {
                out.put_u8(0);
                id.put(out);
                input.put(out);
            }
            ServerFrame::Output(output) => {
                out.put_u8(1);
                output.put(out);
            }
            ServerFrame::Window(bytes) => {
                out.put_u8(4);
                bytes.put(out);
            }
            ServerFrame::Ended(exit) => {
                out.put_u8(2);
                exit.put(out);
            }
            ServerFrame::OutputEnd => out.put_u8(5),
            ServerFrame::Refused(error) => {
                out.put_u8(3);
                error.put(out);
            }
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => ServerFrame::Started { id: Wire::read(fields)?, input: Wire::read(fields)? },
            1 => ServerFrame::Output(Wire::read(fields)?),
            2 => ServerFrame::Ended(Wire::read(fields)?),
            3 => ServerFrame::Refused(Wire::read(fields)?),
            4 => ServerFrame::Window(Wire::read(fields)?),
            5 => ServerFrame::OutputEnd,
            _ => return Err(DecodeError::Invalid),
        })
    }
}
