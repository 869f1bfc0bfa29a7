//! WebSockets as byte streams. The bytes of the stream are the payload of binary messages, which
//! may be split at any point.
//!
//! Libraries perform the handshake, but this module reads and writes the frames. A library returns
//! whole messages. It copies each byte three times, and each connection keeps a buffer for a
//! message. A byte stream does not need message boundaries. Here, payload is read from the socket
//! directly into the reader's buffer, and written directly from the writer's buffer.
//!
//! - A read first sends the data that was written before. Both ends of an SSH connection write and
//!   then read. If the written data stayed in a buffer, both ends would wait forever.
//! - If a connection ends without a close frame, this is an EOF and not an error.

mod frame;
mod socket;

pub use self::socket::{CloseFrame, MAX_SENT_WEBSOCKET_MESSAGE_BYTES, WebSocketByteStream};
