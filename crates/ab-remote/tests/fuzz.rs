//! The properties that `cargo xtask fuzz` lets run for long.

use ab_core::metadata::Listing;
use ab_core::search::SearchResults;
use ab_core::{EffectivePolicy, Error};
use ab_remote::sftp::extended::ExtendedRequest;
use ab_remote::sftp::packet::{ClientPacket, SftpRequest, decode_client_packet};
use ab_remote::wire::call::{RemoteCall, RemoteCallReplyPart, RemoteHelloReply};
use ab_remote::wire::frame::{ProcessClientFrame, ProcessServerFrame};
use ab_remote::wire::{self, WireCodec};
use ab_testkit::fuzz;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;

/// Fields as requests have them, whole or with a length that is none.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let string = vec(any::<u8>(), 0..12);
    prop_oneof![
        4 => string.prop_map(|text| [&(text.len() as u32).to_be_bytes()[..], &text].concat()),
        2 => any::<u32>().prop_map(|number| number.to_be_bytes().to_vec()),
        2 => select(vec![0u32, 1, 2, 4, 8, 13, 15, 0x8000_000f]).prop_map(|n| n.to_be_bytes().to_vec()),
        1 => any::<u64>().prop_map(|number| number.to_be_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ]
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![6 => 1u8..=20, 2 => Just(200), 1 => any::<u8>()];
    let whole = (kind, any::<u32>(), vec(field(), 0..6)).prop_map(|(kind, id, fields)| {
        [vec![kind], id.to_be_bytes().to_vec(), fields.concat()].concat()
    });
    prop_oneof![5 => whole, 1 => vec(any::<u8>(), 0..40)]
}

/// Whatever comes in, there is a request, or a refusal that names it; nothing is made up.
fn check_packet(bytes: &[u8]) -> TestCaseResult {
    let packet = Bytes::copy_from_slice(bytes);
    let inside = |part: &Bytes| {
        let (start, end) = (packet.as_ptr() as usize, packet.as_ptr() as usize + packet.len());
        let at = part.as_ptr() as usize;
        part.is_empty() || (start <= at && at + part.len() <= end)
    };
    match decode_client_packet(packet.clone()) {
        Ok(ClientPacket::Init { version }) => {
            prop_assert_eq!(bytes[0], 1);
            prop_assert_eq!(&version.to_be_bytes()[..], &bytes[1..5]);
        }
        Ok(ClientPacket::Request { id, request }) => {
            prop_assert_eq!(&id.to_be_bytes()[..], &bytes[1..5]);
            let parts: Vec<Bytes> = match &request {
                SftpRequest::Open { path, .. }
                | SftpRequest::Lstat { path }
                | SftpRequest::SetStat { path, .. }
                | SftpRequest::OpenDir { path }
                | SftpRequest::Remove { path }
                | SftpRequest::MakeDir { path, .. }
                | SftpRequest::RemoveDir { path }
                | SftpRequest::RealPath { path }
                | SftpRequest::Stat { path }
                | SftpRequest::ReadLink { path } => vec![path.clone()],
                SftpRequest::Close { handle }
                | SftpRequest::Read { handle, .. }
                | SftpRequest::Fstat { handle }
                | SftpRequest::FsetStat { handle, .. }
                | SftpRequest::ReadDir { handle } => vec![handle.clone()],
                SftpRequest::Write { handle, data, .. } => vec![handle.clone(), data.clone()],
                SftpRequest::Rename { from, to } => vec![from.clone(), to.clone()],
                SftpRequest::Symlink { first, second } => vec![first.clone(), second.clone()],
                SftpRequest::Extended { name, body } => vec![name.clone(), body.clone()],
                SftpRequest::Unknown { kind } => {
                    prop_assert!(!(3..=20).contains(kind) && *kind != 200);
                    vec![]
                }
            };
            prop_assert!(parts.iter().all(inside));
            if let SftpRequest::Extended { name, body } = request {
                let _ = ExtendedRequest::decode(&name, body);
            }
        }
        Err(malformed) => match malformed.id {
            Some(id) => prop_assert_eq!(&id.to_be_bytes()[..], &bytes[1..5]),
            None => prop_assert!(bytes.len() < 5),
        },
    }
    Ok(())
}

#[test]
fn fuzz_sftp() {
    fuzz::check_property("fuzz_sftp", packet(), |bytes| {
        check_packet(&bytes)?;
        // Every beginning of a packet is one too, or is refused.
        (0..bytes.len()).try_for_each(|end| check_packet(&bytes[..end]))
    });
}

/// What reads as a value is written as bytes that read as the same; whatever else is refused.
fn reads_back<T: WireCodec>(bytes: &[u8]) -> TestCaseResult {
    if let Ok(value) = wire::decode::<T>(Bytes::copy_from_slice(bytes)) {
        let written = wire::encode(&value);
        let again = wire::decode::<T>(written.clone());
        prop_assert_eq!(again.map(|again| wire::encode(&again)), Ok(written));
    }
    Ok(())
}

/// Small numbers, strings and numbers of items, as our own requests are made of.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof!["[a-z/.]{0,9}", Just(String::new()), Just("a/b".to_owned())];
    let piece = prop_oneof![
        4 => (0u8..4).prop_map(|byte| vec![byte]),
        4 => text.prop_map(|text| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()),
        3 => (0u32..3).prop_map(|number| number.to_be_bytes().to_vec()),
        2 => (0u64..3).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..9),
    ];
    (0u8..24, vec(piece, 0..24)).prop_map(|(tag, pieces)| [vec![tag], pieces.concat()].concat())
}

#[test]
fn fuzz_sftp_extended() {
    fuzz::check_property("fuzz_sftp_extended", (body(), any::<u8>(), any::<usize>()), |input| {
        let (body, byte, at) = input;
        let mut changed = body.clone();
        let place = at % changed.len();
        changed[place] = byte;
        for bytes in [&body, &changed] {
            for end in (0..=bytes.len()).rev().take(4) {
                let bytes = &bytes[..end];
                reads_back::<RemoteCall>(bytes)?;
                reads_back::<RemoteHelloReply>(bytes)?;
                reads_back::<RemoteCallReplyPart>(bytes)?;
                reads_back::<ProcessClientFrame>(bytes)?;
                reads_back::<ProcessServerFrame>(bytes)?;
                reads_back::<Listing>(bytes)?;
                reads_back::<SearchResults>(bytes)?;
                reads_back::<Error>(bytes)?;
                reads_back::<EffectivePolicy>(bytes)?;
                let name = ab_remote::wire::call::REMOTE_CALL_EXTENSION_NAME.as_bytes();
                let _ = ExtendedRequest::decode(name, Bytes::copy_from_slice(bytes));
            }
        }
        Ok(())
    });
}
