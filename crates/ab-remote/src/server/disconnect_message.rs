//! The disconnect message for a client whose connection is not encrypted yet.

use bytes::{BufMut, Bytes, BytesMut};

/// The number of the message `SSH_MSG_DISCONNECT`, and the code of the reason "by application".
const DISCONNECT: u8 = 1;
const BY_APPLICATION: u32 = 11;
/// The length of an unencrypted packet is a multiple of this.
const BLOCK: usize = 8;
const LEAST_PADDING: usize = 4;

/// Returns a complete unencrypted packet with the message. A client accepts it only as the first
/// packet after the identification line of this server.
pub(super) fn in_the_clear(why: &str) -> Bytes {
    let mut payload = BytesMut::new();
    payload.put_u8(DISCONNECT);
    payload.put_u32(BY_APPLICATION);
    for text in [why, "en"] {
        payload.put_u32(text.len() as u32);
        payload.put_slice(text.as_bytes());
    }
    let head = size_of::<u32>() + size_of::<u8>();
    let mut padding = BLOCK - (head + payload.len()) % BLOCK;
    if padding < LEAST_PADDING {
        padding += BLOCK;
    }
    let mut packet = BytesMut::new();
    packet.put_u32((size_of::<u8>() + payload.len() + padding) as u32);
    packet.put_u8(padding as u8);
    packet.put_slice(&payload);
    packet.put_bytes(0, padding);
    packet.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_whole_blocks() {
        for length in 0..40 {
            let why = "x".repeat(length);
            let packet = in_the_clear(&why);
            let (size, padding) = (&packet[..4], usize::from(packet[4]));
            assert_eq!(u32::from_be_bytes(size.try_into().unwrap()) as usize, packet.len() - 4);
            assert!(packet.len().is_multiple_of(BLOCK) && padding >= LEAST_PADDING, "{packet:?}");
            assert_eq!(packet[5..packet.len() - padding].len(), 1 + 4 + 4 + length + 4 + 2);
        }
    }
}
