//! WebSockets as byte streams: bytes in binary messages, cut anywhere.
//!
//! The handshake is left to libraries; the frames are read and written here. Libraries hand out whole
//! messages, so that each byte is copied three times on its way to the stream, and each connection
//! keeps room for a message. A byte stream does not care where messages end: payload goes from the
//! socket into the reader's buffer and from the writer's into the socket.
//!
//! - Whoever reads has what it wrote before sent first: SSH's two ends both speak, then both
//!   listen, and a message that waits in a buffer would keep them listening for ever.
//! - A peer that is gone without a word is the end of the stream, not an error.

mod frame;
mod socket;

pub use self::socket::{CloseFrame, MAX_SENT_WEBSOCKET_MESSAGE_BYTES, WebSocketByteStream};
