//! WebSockets as byte streams: the bytes are the payload of binary messages, split anywhere.
//!
//! Libraries perform the handshake; the frames are read and written here. Libraries return whole
//! messages, so that each byte is copied three times, and each connection keeps a buffer for a
//! message. A byte stream does not need message boundaries: payload goes from the socket directly
//! into the reader's buffer, and from the writer's buffer into the socket.
//!
//! - A read first sends what was written before. Both ends of an SSH connection write and then
//!   read; a message left in a buffer would let both wait for ever.
//! - A connection that ends without a close frame is EOF, not an error.

mod frame;
mod socket;

pub use self::socket::{CloseFrame, MAX_SENT_WEBSOCKET_MESSAGE_BYTES, WebSocketByteStream};
