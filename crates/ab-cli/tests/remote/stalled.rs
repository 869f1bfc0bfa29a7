//! Ways out for a person: what a second interrupt does, also where the other side has gone silent.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ExitStatus, Stdio};

use rustix::process::Signal;

use super::commands::{bare, begun, signal, wait_until_gone};
use super::large::{large, part_of};
use super::{Far, WAYS, Way};
use crate::relay::Relay;
use crate::stage::Stage;

/// A daemon without walls behind a way that can stall.
fn behind_a_relay(stage: &Stage) -> (Far, Relay) {
    let mut far = bare(stage);
    let relay = Relay::to(&far.daemon.address);
    far.socket = format!("ws://{}/ssh", relay.address);
    (far, relay)
}

/// Interrupts until it is gone. Interrupts that come together count as one, so it takes several.
fn interrupted(child: &mut Child) -> ExitStatus {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        signal(child, Signal::INT);
        std::thread::yield_now();
    }
}

#[test]
fn a_second_interrupt_ends_a_command_that_minds_no_first() {
    let stage = Stage::new();
    let far = bare(&stage);
    for way in WAYS {
        let line = "trap 'echo caught' INT; echo $$; while :; do sleep 0.05; done";
        let (mut child, pid) = begun(&far, &stage, way, line);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        signal(&child, Signal::INT);
        let mut caught = String::new();
        out.read_line(&mut caught).unwrap();
        assert_eq!(caught, "caught\n", "{way:?}");
        signal(&child, Signal::INT);
        assert_eq!(child.wait().unwrap().code(), Some(128 + 9), "{way:?}");
        wait_until_gone(&pid);
    }
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_second_interrupt_leaves_a_side_that_has_gone_silent() {
    let stage = Stage::new();
    let (far, relay) = behind_a_relay(&stage);
    let line = "trap '' INT; echo $$; while :; do sleep 0.05; done";
    let (mut child, pid) = begun(&far, &stage, Way::Socket, line);
    relay.stall();
    let mut errors = child.stderr.take().unwrap();
    assert_eq!(interrupted(&mut child).code(), Some(130));
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("the command did not end in time"), "{said}");
    // The command ends when its daemon hears that nobody is there.
    relay.go_on();
    wait_until_gone(&pid);
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_large_write_that_cannot_be_cleared_away_is_left_and_named() {
    let stage = Stage::with(&[("big.bin", "old")]);
    let (far, relay) = behind_a_relay(&stage);
    let mut command = far.prepared(&stage, Way::Socket, &["fs", "write", "big.bin"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&large()).unwrap();
    let part = part_of(&stage, "big.bin");
    relay.stall();
    let mut errors = child.stderr.take().unwrap();
    assert_eq!(interrupted(&mut child).code(), Some(130));
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    let expect = format!("'big.bin' was not changed; '{part}' may remain");
    assert!(said.contains(&expect), "{said}");
    assert_eq!(stage.text("big.bin"), "old");
    relay.go_on();
    assert_eq!(far.daemon.end().0, 0);
}
