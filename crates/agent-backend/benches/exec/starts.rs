//! How long `true` takes, and how many of it a second, by isolation; again in a large process.

use agent_backend::{Backend, Isolation};

use crate::measure::{ROUNDS, Row, median, p50, rate};
use crate::peers::{self, Bare};
use crate::workspace;

const COUNT: usize = 60;
const CROWD: usize = 640;
const RESIDENT: usize = 400 * 1024 * 1024;

struct Ours {
    none: Backend,
    landlock: Backend,
    bwrap: Backend,
    bare: Bare,
    _directories: Vec<tempfile::TempDir>,
}

pub(crate) async fn run() {
    let (one, none) = workspace(Isolation::None);
    let (two, landlock) = workspace(Isolation::Landlock);
    let (three, bwrap) = workspace(Isolation::Bwrap);
    let bare = Bare::like(&bwrap).await;
    let ours = Ours { none, landlock, bwrap, bare, _directories: vec![one, two, three] };
    println!("exec true; peers: std's spawn of sh -c true, and bwrap told the same");
    Row::head();
    let small = figures(&ours).await.print();
    at_once(&ours).await;
    let ballast = vec![1_u8; RESIDENT];
    println!("\nthe same with 400 MiB resident");
    Row::head();
    let large = figures(&ours).await.print();
    println!("\nwith 400 MiB, of our own figure without");
    for ((what, small), large) in ["none", "landlock", "bwrap"].iter().zip(small).zip(large) {
        println!("{what:<36} {:>7.2}x  at most 1.3", large / small);
    }
    drop(ballast);
}

struct Figures {
    none: Row,
    landlock: Row,
    bwrap: Row,
}

impl Figures {
    /// Our own medians, after the table.
    fn print(self) -> [f64; 3] {
        let own = [&self.none, &self.landlock, &self.bwrap].map(|row| median(row.ours.clone()));
        self.none.print("none, beside std", "us", "at most 1.1");
        self.landlock.print("landlock, beside none", "us", "at most 1.3");
        self.bwrap.print("bwrap, beside bare bwrap", "us", "at most 1.15");
        own
    }
}

async fn figures(ours: &Ours) -> Figures {
    let mut figures = Figures { none: Row::new(), landlock: Row::new(), bwrap: Row::new() };
    // What is done once is done before.
    for backend in [&ours.none, &ours.landlock, &ours.bwrap] {
        ready(backend).await;
    }
    for _ in 0..ROUNDS {
        let none = p50(COUNT, |_| ready(&ours.none)).await;
        let plain = p50(COUNT, |_| async { peers::plain() }).await;
        let landlock = p50(COUNT, |_| ready(&ours.landlock)).await;
        let bwrap = p50(COUNT, |_| ready(&ours.bwrap)).await;
        let bare = p50(COUNT, |_| async { ours.bare.run() }).await;
        figures.none.ours.push(none);
        figures.none.peer.push(plain);
        figures.landlock.ours.push(landlock);
        figures.landlock.peer.push(none);
        figures.bwrap.ours.push(bwrap);
        figures.bwrap.peer.push(bare);
    }
    figures
}

async fn ready(backend: &Backend) {
    backend.exec("true").await.unwrap();
}

async fn at_once(ours: &Ours) {
    let mut row = Row::new();
    for _ in 0..ROUNDS {
        let none = ours.none.clone();
        let step = move |_| {
            let none = none.clone();
            async move { ready(&none).await }
        };
        row.ours.push(rate(CROWD, step).await);
        row.peer.push(threads());
    }
    row.print("none, 64 at once, beside 64 threads", "/s", "at least 0.95");
}

/// Starts a second, by as many threads as ours has in flight.
fn threads() -> f64 {
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| (0..CROWD / 64).for_each(|_| peers::plain()));
        }
    });
    CROWD as f64 / start.elapsed().as_secs_f64()
}
