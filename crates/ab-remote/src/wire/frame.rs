//! The frames between agent-backend clients and servers about one process, on a separate channel.
//!
//! The channel runs the subsystem [`PROCESS_SUBSYSTEM`]. Each frame has a length prefix. The first
//! frame of the client starts a command or attaches to a process, and grants a window for output.
//! The server sends no more output than the window allows. The client extends the window. A slow
//! reader therefore blocks only its own process. If a server exceeds the window, the client stops
//! accepting output and reports the process as lost. A process that the channel has started and
//! that is not detached ends when the channel is closed.

use ab_core::Error;
use ab_core::process::{ExecRequest, OutputChunk, ProcessControlMessage, ProcessExit, ProcessId};
use bytes::{BufMut, Bytes, BytesMut};

use super::call::RemoteCallId;
use super::{DecodeError, DecodeResult, WireCodec};
use crate::sftp::packet::SshFieldReader;

pub const PROCESS_SUBSYSTEM: &str = "process@agent-backend";
/// Maximum length of a frame in bytes. Command lines and environments may be long.
pub(crate) const MAX_PROCESS_FRAME_BYTES: usize = 8 * 1024 * 1024;

/// Number of bytes of input that a client may send before the server reports that the process has
/// taken some of them.
pub(crate) const PROCESS_STDIN_WINDOW_BYTES: u64 = 256 * 1024;

/// A frame from the client.
#[derive(Clone, Debug)]
pub enum ProcessClientFrame {
    Exec {
        call: RemoteCallId,
        window_bytes: u64,
        request: Box<ExecRequest>,
    },
    Attach {
        id: ProcessId,
        from: u64,
        window_bytes: u64,
    },
    Input(Bytes),
    /// The caller dropped its sender of standard input, so no more input will follow.
    InputEnd,
    Control(ProcessControlMessage),
    /// Extends the output window by this many bytes.
    WindowAdjust(u64),
    /// The last frame of the client: the caller gives the process up. Frames that were sent earlier
    /// still take effect.
    ProcessDropped,
}

/// A frame from the server.
#[derive(Clone, Debug)]
pub enum ProcessServerFrame {
    /// The process is running, or was running. `input` is whether it accepts standard input.
    Started {
        id: ProcessId,
        accepts_input: bool,
    },
    Output(OutputChunk),
    /// The process has taken this number of bytes of input.
    WindowAdjust(u64),
    /// How the process ended, independent of its output. `None` if this is unknown.
    Ended(Option<ProcessExit>),
    /// The last frame: there is no more output.
    OutputEnd,
    /// The last frame: the process could not be started, or the client could not attach to it.
    Refused(Error),
}

/// Encodes a frame with its length prefix.
pub fn encode_frame(frame: &impl WireCodec) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u32(0);
    frame.encode_to(&mut out);
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.freeze()
}

impl WireCodec for ProcessClientFrame {
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            ProcessClientFrame::Exec { call, window_bytes: room, request } => {
                out.put_u8(0);
                call.encode_to(out);
                room.encode_to(out);
                request.encode_to(out);
            }
            ProcessClientFrame::Attach { id, from, window_bytes: room } => {
                out.put_u8(1);
                id.encode_to(out);
                (*from, *room).encode_to(out);
            }
            ProcessClientFrame::Input(bytes) => {
                out.put_u8(2);
                bytes.encode_to(out);
            }
            ProcessClientFrame::InputEnd => out.put_u8(3),
            ProcessClientFrame::Control(control) => {
                out.put_u8(4);
                control.encode_to(out);
            }
            ProcessClientFrame::WindowAdjust(bytes) => {
                out.put_u8(5);
                bytes.encode_to(out);
            }
            ProcessClientFrame::ProcessDropped => out.put_u8(6),
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(match fields.read_u8()? {
            0 => ProcessClientFrame::Exec {
                call: WireCodec::decode_from(fields)?,
                window_bytes: WireCodec::decode_from(fields)?,
                request: Box::new(WireCodec::decode_from(fields)?),
            },
            1 => ProcessClientFrame::Attach {
                id: WireCodec::decode_from(fields)?,
                from: WireCodec::decode_from(fields)?,
                window_bytes: WireCodec::decode_from(fields)?,
            },
            2 => ProcessClientFrame::Input(WireCodec::decode_from(fields)?),
            3 => ProcessClientFrame::InputEnd,
            4 => ProcessClientFrame::Control(WireCodec::decode_from(fields)?),
            5 => ProcessClientFrame::WindowAdjust(WireCodec::decode_from(fields)?),
            6 => ProcessClientFrame::ProcessDropped,
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for ProcessServerFrame {
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            ProcessServerFrame::Started { id, accepts_input: input } => {
                out.put_u8(0);
                id.encode_to(out);
                input.encode_to(out);
            }
            ProcessServerFrame::Output(output) => {
                out.put_u8(1);
                output.encode_to(out);
            }
            ProcessServerFrame::WindowAdjust(bytes) => {
                out.put_u8(4);
                bytes.encode_to(out);
            }
            ProcessServerFrame::Ended(exit) => {
                out.put_u8(2);
                exit.encode_to(out);
            }
            ProcessServerFrame::OutputEnd => out.put_u8(5),
            ProcessServerFrame::Refused(error) => {
                out.put_u8(3);
                error.encode_to(out);
            }
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(match fields.read_u8()? {
            0 => ProcessServerFrame::Started {
                id: WireCodec::decode_from(fields)?,
                accepts_input: WireCodec::decode_from(fields)?,
            },
            1 => ProcessServerFrame::Output(WireCodec::decode_from(fields)?),
            2 => ProcessServerFrame::Ended(WireCodec::decode_from(fields)?),
            3 => ProcessServerFrame::Refused(WireCodec::decode_from(fields)?),
            4 => ProcessServerFrame::WindowAdjust(WireCodec::decode_from(fields)?),
            5 => ProcessServerFrame::OutputEnd,
            _ => return Err(DecodeError::Invalid),
        })
    }
}
