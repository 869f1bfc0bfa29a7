//! The properties that `cargo xtask fuzz` lets run for long.

use ab_remote::sftp::extended::{Extended, MAX_GLOBS, Search, TextAnswer, Wanted, Wish};
use ab_remote::sftp::packet::{Incoming, Request, decode};
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
    match decode(packet.clone()) {
        Ok(Incoming::Init { version }) => {
            prop_assert_eq!(bytes[0], 1);
            prop_assert_eq!(&version.to_be_bytes()[..], &bytes[1..5]);
        }
        Ok(Incoming::Request { id, request }) => {
            prop_assert_eq!(&id.to_be_bytes()[..], &bytes[1..5]);
            let parts: Vec<Bytes> = match &request {
                Request::Open { path, .. }
                | Request::Lstat { path }
                | Request::SetStat { path, .. }
                | Request::OpenDir { path }
                | Request::Remove { path }
                | Request::MakeDir { path, .. }
                | Request::RemoveDir { path }
                | Request::RealPath { path }
                | Request::Stat { path }
                | Request::ReadLink { path } => vec![path.clone()],
                Request::Close { handle }
                | Request::Read { handle, .. }
                | Request::Fstat { handle }
                | Request::FsetStat { handle, .. }
                | Request::ReadDir { handle } => vec![handle.clone()],
                Request::Write { handle, data, .. } => vec![handle.clone(), data.clone()],
                Request::Rename { from, to } => vec![from.clone(), to.clone()],
                Request::Symlink { first, second } => vec![first.clone(), second.clone()],
                Request::Extended { name, body } => vec![name.clone(), body.clone()],
                Request::Unknown { kind } => {
                    prop_assert!(!(3..=20).contains(kind) && *kind != 200);
                    vec![]
                }
            };
            prop_assert!(parts.iter().all(inside));
            if let Request::Extended { name, body } = request {
                let _ = Extended::decode(&name, body);
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
    fuzz::run("fuzz_sftp", packet(), |bytes| {
        check_packet(&bytes)?;
        // Every beginning of a packet is one too, or is refused.
        (0..bytes.len()).try_for_each(|end| check_packet(&bytes[..end]))
    });
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

fn search() -> impl Strategy<Value = Extended> {
    let names = (bytes(), any::<bool>())
        .prop_map(|(glob, directories)| Wanted::Names { glob, directories });
    let answer = select(vec![TextAnswer::Lines, TextAnswer::Files, TextAnswer::Counts]);
    let text = (bytes(), any::<[bool; 3]>(), any::<[u32; 2]>(), answer).prop_map(
        |(pattern, [regex, any_case, over_lines], [before, after], answer)| Wanted::Text {
            pattern,
            regex,
            any_case,
            over_lines,
            before,
            after,
            answer,
        },
    );
    let globs = || vec(bytes(), 0..4);
    (bytes(), prop_oneof![names, text], globs(), globs(), any::<[bool; 2]>(), any::<[u32; 3]>())
        .prop_map(|(path, what, include, exclude, flags, numbers)| {
            Extended::Search(Box::new(Search {
                path,
                what,
                include,
                exclude,
                hidden: flags[0],
                honour_ignore_files: flags[1],
                matches: numbers[0],
                bytes: numbers[1],
                milliseconds: numbers[2],
            }))
        })
}

fn extended() -> impl Strategy<Value = Extended> {
    let wish = prop_oneof![
        any::<u32>().prop_map(Wish::Signal),
        any::<[u32; 2]>().prop_map(|[columns, rows]| Wish::Resize { columns, rows }),
        Just(Wish::EndInput),
    ];
    prop_oneof![
        (bytes(), bytes()).prop_map(|(from, to)| Extended::PosixRename { from, to }),
        bytes().prop_map(|path| Extended::Statvfs { path }),
        bytes().prop_map(|handle| Extended::FstatVfs { handle }),
        bytes().prop_map(|handle| Extended::Fsync { handle }),
        select(vec![Extended::Limits, Extended::Errors, Extended::Processes]),
        (bytes(), any::<bool>()).prop_map(|(path, follow)| Extended::Stat { path, follow }),
        (bytes(), any::<[u32; 2]>(), any::<bool>()).prop_map(
            |(path, [depth, limit], described)| Extended::List { path, depth, limit, described }
        ),
        search(),
        (bytes(), any::<u64>()).prop_map(|(id, from)| Extended::Attach { id, from }),
        bytes().prop_map(|handle| Extended::Output { handle }),
        (bytes(), wish).prop_map(|(handle, wish)| Extended::Control { handle, wish }),
    ]
}

#[test]
fn fuzz_sftp_extended() {
    fuzz::run("fuzz_sftp_extended", (extended(), any::<u8>(), any::<usize>()), |input| {
        let (request, byte, at) = input;
        let (name, body) = request.encode();
        prop_assert_eq!(Extended::decode(name.as_bytes(), body.clone()), Ok(request));
        // Cut or changed anywhere it is another request or none, and costs no more than it has.
        for end in 0..body.len() {
            prop_assert!(Extended::decode(name.as_bytes(), body.slice(..end)).is_err());
        }
        if !body.is_empty() {
            let mut changed = body.to_vec();
            changed[at % body.len()] = byte;
            if let Ok(Extended::Search(search)) =
                Extended::decode(name.as_bytes(), Bytes::from(changed))
            {
                prop_assert!(search.include.len() <= MAX_GLOBS);
            }
        }
        Ok(())
    });
}
