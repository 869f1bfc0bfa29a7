//! A way to a daemon that can stall as a network does: nothing arrives, and nothing is closed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct Relay {
    /// Where to connect instead.
    pub(crate) address: String,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let closed = self.closed.lock().unwrap();
        drop(self.changed.wait_while(closed, |closed| *closed).unwrap());
    }
}

impl Relay {
    /// Passes everything on, for now. Its threads end with their connections.
    pub(crate) fn to(target: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Arc::new(Gate::default());
        let (target, shared) = (target.to_owned(), gate.clone());
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                // A daemon that is gone is one that hangs up.
                let Ok(far) = TcpStream::connect(&target) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let gate = shared.clone();
                    thread::spawn(move || pass_on(from, to, &gate));
                }
            }
        });
        Relay { address, gate }
    }

    /// Passes nothing on from now on.
    pub(crate) fn stall(&self) {
        self.gate.set(true);
    }

    /// Passes on what has waited.
    pub(crate) fn go_on(&self) {
        self.gate.set(false);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.go_on();
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut block = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut block).unwrap_or(0);
        gate.pass();
        if length == 0 || to.write_all(&block[..length]).is_err() {
            break;
        }
    }
    // Whoever is not there any more needs no goodbye.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
