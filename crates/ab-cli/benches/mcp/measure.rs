//! Figures of rounds, the median of their ratios, and the bars they are held to.

pub(crate) const ROUNDS: usize = 7;

/// What the ratio of ours to the peer's must be, or ours alone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

/// A figure of ours and of the peer's for each round.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub(crate) ours: Vec<f64>,
    pub(crate) peer: Vec<f64>,
}

impl Pair {
    /// Lets both take turns.
    pub(crate) fn of(mut ours: impl FnMut() -> f64, mut peer: impl FnMut() -> f64) -> Pair {
        let mut pair = Pair::default();
        for _ in 0..ROUNDS {
            pair.ours.push(ours());
            pair.peer.push(peer());
        }
        pair
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    missed: usize,
    begun: bool,
}

impl Table {
    /// A line for two.
    pub(crate) fn compare(&mut self, what: &str, unit: &str, bar: Bar, pair: &Pair) {
        assert!(pair.ours.len() >= ROUNDS && pair.ours.len() == pair.peer.len());
        let ratios = pair.ours.iter().zip(&pair.peer).map(|(ours, peer)| ours / peer);
        let ratio = median(ratios.collect());
        let peer = format!("{} {unit}", figure(median(pair.peer.clone())));
        self.line(what, unit, median(pair.ours.clone()), &peer, &figure(ratio), (ratio, bar));
    }

    /// A line for ours alone.
    pub(crate) fn alone(&mut self, what: &str, unit: &str, bar: Bar, ours: &[f64]) {
        let ours = median(ours.to_vec());
        self.line(what, unit, ours, "", "", (ours, bar));
    }

    /// How many are not where they should be.
    pub(crate) fn missed(&self) -> usize {
        self.missed
    }

    fn line(
        &mut self,
        what: &str,
        unit: &str,
        ours: f64,
        peer: &str,
        ratio: &str,
        (held, bar): (f64, Bar),
    ) {
        if !self.begun {
            println!("{:<44} {:>15} {:>15} {:>10}  bar", "", "ours", "peer", "ours/peer");
            self.begun = true;
        }
        let (passed, bar) = match bar {
            Bar::AtLeast(bar) => (held >= bar, format!("at least {bar:.3}")),
            Bar::AtMost(bar) => (held <= bar, format!("at most {bar:.3}")),
        };
        let verdict = if passed { "ok" } else { "MISSED" };
        self.missed += usize::from(!passed);
        let ours = format!("{} {unit}", figure(ours));
        println!("{what:<44} {ours:>15} {peer:>15} {ratio:>10}  {bar} {verdict}");
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// As many digits as matter.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.4}"),
    }
}
