//! Encodes and decodes the headers of WebSocket frames, and masks payloads, as defined in RFC 6455.
//! Does no I/O.

/// Maximum length of a frame header: two bytes, eight bytes of length, and four bytes of mask.
pub(super) const LONGEST_HEAD: usize = 14;
/// Maximum length of the payload of a control frame.
pub(super) const LONGEST_CONTROL: usize = 125;

/// The error for bytes that violate the WebSocket protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken(pub(super) &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A continuation frame.
    More,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Kind {
    const ALL: [(Self, u8); 6] = [
        (Self::More, 0x0),
        (Self::Text, 0x1),
        (Self::Binary, 0x2),
        (Self::Close, 0x8),
        (Self::Ping, 0x9),
        (Self::Pong, 0xa),
    ];

    fn of(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == code).map(|(kind, _)| *kind)
    }

    fn code(self) -> u8 {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, code)| *code)
    }

    /// Whether it is a control frame.
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Whether this is the last frame of a message.
    pub(super) last: bool,
    pub(super) kind: Kind,
    pub(super) length: u64,
    pub(super) mask: Option<Mask>,
}

impl Head {
    /// Parses the frame header at the start of `bytes`, and returns it with its length. `None` if
    /// it is incomplete.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Broken> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(Broken("a frame has reserved bits set, but no extension was negotiated"));
        }
        let last = first & 0x80 != 0;
        let kind = Kind::of(first & 0x0f).ok_or(Broken("a frame is of no known kind"))?;
        let (length, rest) = match second & 0x7f {
            126 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest),
                None => return Ok(None),
            },
            127 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from_be_bytes(*length), rest),
                None => return Ok(None),
            },
            length => (u64::from(length), rest),
        };
        if length >> 63 != 0 {
            return Err(Broken("a frame is longer than any may be"));
        }
        if kind.is_control() && (!last || length > LONGEST_CONTROL as u64) {
            return Err(Broken("a control frame is too long, or in pieces"));
        }
        let (mask, rest) = if second & 0x80 != 0 {
            match rest.split_first_chunk() {
                Some((key, rest)) => (Some(Mask(*key)), rest),
                None => return Ok(None),
            }
        } else {
            (None, rest)
        };
        Ok(Some((Self { last, kind, length, mask }, bytes.len() - rest.len())))
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.push(u8::from(self.last) << 7 | self.kind.code());
        let masked = u8::from(self.mask.is_some()) << 7;
        match (u8::try_from(self.length), u16::try_from(self.length)) {
            (Ok(length @ ..126), _) => into.push(masked | length),
            (_, Ok(length)) => {
                into.push(masked | 126);
                into.extend(length.to_be_bytes());
            }
            _ => {
                into.push(masked | 127);
                into.extend(self.length.to_be_bytes());
            }
        }
        if let Some(Mask(key)) = self.mask {
            into.extend(key);
        }
    }
}

/// A masking key. Each call continues at the byte of the key at which the last call stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask(pub(super) [u8; 4]);

impl Mask {
    pub(super) fn apply(&mut self, bytes: &mut [u8]) {
        let [a, b, c, d] = self.0;
        let key = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
        let (words, rest) = bytes.as_chunks_mut();
        for word in words {
            *word = (u64::from_ne_bytes(*word) ^ key).to_ne_bytes();
        }
        for (byte, key) in rest.iter_mut().zip(self.0.iter().cycle()) {
            *byte ^= key;
        }
        self.0.rotate_left(bytes.len() % 4);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head() -> impl Strategy<Value = Head> {
        let lengths = prop_oneof![
            Just(0),
            Just(125),
            Just(126),
            Just(65_535),
            Just(65_536),
            0..u64::from(u32::MAX) * 8
        ];
        let kind = proptest::sample::select(Kind::ALL.map(|(kind, _)| kind).to_vec());
        (any::<bool>(), kind, lengths, any::<Option<[u8; 4]>>()).prop_map(
            |(last, kind, length, mask)| {
                let (last, length) = if kind.is_control() {
                    (true, length % (LONGEST_CONTROL as u64 + 1))
                } else {
                    (last, length)
                };
                Head { last, kind, length, mask: mask.map(Mask) }
            },
        )
    }

    proptest! {
        #[test]
        fn heads_are_read_as_they_were_written(head in head(), after in any::<Vec<u8>>()) {
            let mut bytes = Vec::new();
            head.write(&mut bytes);
            let length = bytes.len();
            prop_assert!(length <= LONGEST_HEAD);
            for missing in 0..length {
                prop_assert_eq!(Head::read(&bytes[..missing]), Ok(None));
            }
            bytes.extend(after);
            prop_assert_eq!(Head::read(&bytes), Ok(Some((head, length))));
        }

        #[test]
        fn any_bytes_are_a_head_or_none(bytes in any::<Vec<u8>>()) {
            if let Ok(Some((head, length))) = Head::read(&bytes) {
                prop_assert!(length <= bytes.len());
                prop_assert!(!head.kind.is_control() || head.length <= LONGEST_CONTROL as u64);
            }
        }

        #[test]
        fn a_mask_does_not_mind_where_payload_is_cut(
            key in any::<[u8; 4]>(),
            bytes in any::<Vec<u8>>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let plain: Vec<u8> =
                bytes.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            let mut masked = bytes.clone();
            let (one, two) = masked.split_at_mut(cut.index(bytes.len() + 1));
            let mut mask = Mask(key);
            mask.apply(one);
            mask.apply(two);
            prop_assert_eq!(masked, plain);
        }
    }

    #[test]
    fn what_no_websocket_sends_is_refused() {
        for (bytes, why) in [
            (&[0xc2, 0x00][..], "bits"),
            (&[0x83, 0x00], "kind"),
            (&[0x8b, 0x00], "kind"),
            (&[0x09, 0x00], "control"),
            (&[0x89, 0x7e, 0x00, 0x7e], "control"),
            (&[0x82, 0x7f, 0x80, 0, 0, 0, 0, 0, 0, 0], "longer"),
        ] {
            let Err(Broken(said)) = Head::read(bytes) else { panic!("{bytes:?} was read") };
            assert!(said.contains(why), "{said}");
        }
    }
}
