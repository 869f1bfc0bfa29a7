//! Turns of ours and a peer's, and the median of their ratios.

use std::time::Instant;

pub(crate) const ROUNDS: usize = 7;

/// One line of the table: a figure of ours and the peer's for each round.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) ours: Vec<f64>,
    pub(crate) peer: Vec<f64>,
}

impl Row {
    pub(crate) fn new() -> Self {
        Self { ours: Vec::new(), peer: Vec::new() }
    }

    /// The names of the columns.
    pub(crate) fn head() {
        println!("{:<36} {:>12} {:>12} {:>8}  bar", "", "ours", "peer", "ours/peer");
    }

    pub(crate) fn print(self, what: &str, unit: &str, bar: &str) {
        let ratios = self.ours.iter().zip(&self.peer).map(|(ours, peer)| ours / peer).collect();
        println!(
            "{what:<36} {:>9.1} {unit} {:>9.1} {unit} {:>7.2}x  {bar}",
            median(self.ours),
            median(self.peer),
            median(ratios),
        );
    }
}

/// Median time of one step, in microseconds.
pub(crate) async fn p50<F: Future>(count: usize, mut step: impl FnMut(usize) -> F) -> f64 {
    let mut times = Vec::with_capacity(count);
    for n in 0..count {
        let start = Instant::now();
        step(n).await;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    median(times)
}

/// Steps a second, 64 in flight.
pub(crate) async fn rate<F: Future<Output = ()> + Send + 'static>(
    count: usize,
    mut step: impl FnMut(usize) -> F,
) -> f64 {
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for n in 0..count {
        if running.len() == 64 {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(step(n));
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    count as f64 / start.elapsed().as_secs_f64()
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Milliseconds that something takes.
pub(crate) async fn millis<T>(work: impl Future<Output = T>) -> (f64, T) {
    let start = Instant::now();
    let value = work.await;
    (start.elapsed().as_secs_f64() * 1000.0, value)
}
