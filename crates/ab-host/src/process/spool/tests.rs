//! Tests what readers of a spool get. Some tests compare it with a plain list of all bytes.

use futures_util::FutureExt;

use super::*;

const SMALL: Bounds = Bounds { memory: 20_000, disk: 0 };

fn spool(bounds: Bounds) -> (Spool, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    (Spool::new(bounds, directory.path().into()), directory)
}

async fn piece(spool: &Spool, from: u64) -> OutputChunk {
    match spool.read(from).await {
        Read::Piece(output) => output,
        other => panic!("{other:?} at {from}"),
    }
}

#[tokio::test]
async fn readers_come_and_go() {
    let (spool, _directory) = spool(Bounds::default());
    assert_eq!(spool.read(0).await, Read::Nothing);
    spool.push(OutputChannel::Stdout, "hello ".into()).await;
    spool.push(OutputChannel::Stdout, "world".into()).await;
    spool.push(OutputChannel::Stderr, "oh".into()).await;
    spool.push(OutputChannel::Stdout, Bytes::new()).await;
    let first = piece(&spool, 0).await;
    let expect = OutputChunk {
        offset: 0,
        lost_bytes_before: 0,
        channel: OutputChannel::Stdout,
        bytes: "hello world".into(),
    };
    assert_eq!(first, expect);
    assert_eq!(piece(&spool, 8).await.bytes, "rld");
    let second = piece(&spool, 11).await;
    assert_eq!((second.channel, second.offset), (OutputChannel::Stderr, 11));
    assert_eq!(spool.head(), 13);
    for from in [13, 14, u64::MAX] {
        assert_eq!(spool.read(from).await, Read::Nothing);
    }
    spool.finish();
    for from in [13, 14, u64::MAX] {
        assert_eq!(spool.read(from).await, Read::End);
    }
    assert_eq!(piece(&spool, 12).await.bytes, "h");
}

#[tokio::test]
async fn what_fell_out_is_told() {
    let (spool, directory) = spool(SMALL);
    for n in 0..10u8 {
        spool.push(OutputChannel::Stdout, vec![n; 5_000].into()).await;
    }
    let oldest = piece(&spool, 100).await;
    assert_eq!((oldest.offset, oldest.lost_bytes_before, oldest.bytes[0]), (35_000, 34_900, 7));
    let (none, _other) = self::spool(Bounds { memory: 0, disk: 0 });
    none.push(OutputChannel::Stderr, "gone".into()).await;
    for _ in 0..2 {
        let loss = piece(&none, 1).await;
        assert_eq!((loss.offset, loss.lost_bytes_before, loss.bytes.len()), (4, 3, 0));
        none.finish();
    }
    assert_eq!(none.read(4).await, Read::End);
    drop(spool);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_disk_keeps_what_memory_does_not() {
    let (spool, directory) = spool(Bounds { memory: 20_000, disk: 1 << 20 });
    for n in 0..100u8 {
        spool.push(OutputChannel::Stdout, vec![n; 5_000].into()).await;
    }
    let mut at = 0;
    while at < spool.head() {
        let output = piece(&spool, at).await;
        assert_eq!((output.lost_bytes_before, u64::from(output.bytes[0])), (0, at / 5_000));
        at += output.bytes.len() as u64;
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files have no names");
}

#[tokio::test]
async fn a_failing_disk_loses_but_does_not_fail() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("later");
    let spool = Spool::new(Bounds { memory: 20_000, disk: 1 << 20 }, place.clone());
    for n in 0..10u8 {
        spool.push(OutputChannel::Stdout, vec![n; 5_000].into()).await;
    }
    let oldest = piece(&spool, 0).await;
    assert!(oldest.lost_bytes_before >= 30_000, "{}", oldest.lost_bytes_before);
    assert_eq!(oldest.lost_bytes_before, oldest.offset);
    std::fs::create_dir(&place).unwrap();
    for n in 10..20u8 {
        spool.push(OutputChannel::Stdout, vec![n; 5_000].into()).await;
    }
    let again = piece(&spool, 0).await;
    assert!(again.offset <= 45_000, "kept since the disk works: {}", again.offset);
}

#[tokio::test]
async fn waiting_misses_nothing() {
    let (spool, _directory) = spool(SMALL);
    let spool = Arc::new(spool);
    spool.push(OutputChannel::Stdout, "ab".into()).await;
    assert!(spool.changed(1).now_or_never().is_some());
    assert!(spool.changed(2).now_or_never().is_none());
    let mut more = Box::pin(spool.changed(2));
    assert!((&mut more).now_or_never().is_none());
    spool.push(OutputChannel::Stdout, "c".into()).await;
    more.await;
    let reader = tokio::spawn({
        let spool = spool.clone();
        async move {
            let (mut at, mut seen) = (0, Vec::new());
            loop {
                match spool.read(at).await {
                    Read::Piece(output) => {
                        at = output.offset + output.bytes.len() as u64;
                        seen.extend_from_slice(&output.bytes);
                    }
                    Read::Nothing => spool.changed(at).await,
                    Read::End => return seen,
                }
            }
        }
    });
    for _ in 0..500 {
        spool.push(OutputChannel::Stderr, "x".into()).await;
        tokio::task::yield_now().await;
    }
    spool.finish();
    assert_eq!(reader.await.unwrap().len(), 503);
    spool.changed(u64::MAX).await;
}

#[tokio::test]
async fn small_pieces_are_joined_and_their_cost_is_bounded() {
    let (spool, _directory) = spool(Bounds { memory: 100_000, disk: 0 });
    for _ in 0..10_000 {
        spool.push(OutputChannel::Stdout, "x".into()).await;
    }
    assert_eq!(spool.shared.memory().pieces.len(), 2);
    assert_eq!(piece(&spool, 0).await.bytes.len(), JOINED_PIECE);
    for n in 0..10_000 {
        let channel = if n % 2 == 0 { OutputChannel::Stdout } else { OutputChannel::Stderr };
        spool.push(channel, "x".into()).await;
    }
    let memory = spool.shared.memory();
    assert!(memory.pieces.len() <= 100_000 / PIECE_COST, "{} pieces", memory.pieces.len());
    assert!(memory.used <= 100_000);
}

#[tokio::test]
async fn a_writer_that_goes_away_loses_nothing() {
    let (spool, _directory) = spool(Bounds { memory: 10_000, disk: 1 << 20 });
    for n in 0..100u8 {
        // Drop the future while it waits for the disk. It may already have finished by then.
        let _ = spool.push(OutputChannel::Stdout, vec![n; 4_999].into()).now_or_never();
    }
    spool.push(OutputChannel::Stdout, vec![100; 4_999].into()).await;
    assert!(spool.shared.memory().used <= 10_000);
    let mut at = 0;
    while at < spool.head() {
        let output = piece(&spool, at).await;
        assert_eq!((output.lost_bytes_before, u64::from(output.bytes[0])), (0, at / 4_999));
        at += output.bytes.len() as u64;
    }
}

/// A generator of pseudorandom numbers. Every run produces the same numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[tokio::test]
async fn agrees_with_a_plain_list() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let disk = [0, 3_000, 40_000, 1 << 20][seed as usize % 4];
        let bounds = Bounds { memory: 500 + dice.below(20_000) as usize, disk };
        let (spool, _directory) = spool(bounds);
        let mut all: Vec<(OutputChannel, u8)> = Vec::new();
        let mut follower = (0, 0);
        for _ in 0..400 {
            let channel =
                if dice.below(2) == 0 { OutputChannel::Stdout } else { OutputChannel::Stderr };
            let length = match dice.below(20) {
                0 => dice.below(100_000),
                1..4 => dice.below(6_000),
                _ => dice.below(40),
            };
            let bytes: Vec<u8> = (0..length).map(|_| dice.below(256) as u8).collect();
            all.extend(bytes.iter().map(|byte| (channel, *byte)));
            spool.push(channel, bytes.into()).await;
            assert!(spool.shared.memory().used <= bounds.memory, "seed {seed}");
            for _ in 0..dice.below(4) {
                let from = dice.below(all.len() as u64 + 10);
                check(&spool, &all, from).await;
            }
            for _ in 0..dice.below(6) {
                let (at, lost) = check(&spool, &all, follower.0).await;
                assert!(at >= follower.0);
                follower = (at, follower.1 + lost);
            }
        }
        spool.finish();
        while follower.0 < all.len() as u64 {
            let (at, lost) = check(&spool, &all, follower.0).await;
            assert!(at > follower.0, "seed {seed}: no progress at {at}");
            follower = (at, follower.1 + lost);
        }
        assert_eq!(spool.read(follower.0).await, Read::End);
        let (first, _) = check(&spool, &all, 0).await;
        let kept = all.len() as u64 - first;
        assert!(disk < 1 << 20 || kept >= (1 << 18).min(all.len() as u64 / 2), "{kept} kept");
    }
}

/// Reads at `from` and compares the result. Returns the position of the next read, and the number
/// of lost bytes.
async fn check(spool: &Spool, all: &[(OutputChannel, u8)], from: u64) -> (u64, u64) {
    let Read::Piece(output) = spool.read(from).await else {
        assert!(from >= all.len() as u64, "nothing at {from} of {}", all.len());
        return (from, 0);
    };
    assert_eq!(output.offset, from + output.lost_bytes_before);
    let start = output.offset as usize;
    let end = start + output.bytes.len();
    let expect: Vec<(OutputChannel, u8)> =
        output.bytes.iter().map(|b| (output.channel, *b)).collect();
    assert_eq!(all[start..end], expect, "at {from}");
    assert!(!expect.is_empty() || start == all.len());
    (end as u64, output.lost_bytes_before)
}
