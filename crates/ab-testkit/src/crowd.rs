//! Concurrent callers, each on its own thread, with any runtime of the test.

use std::future::Future;
use std::sync::{Arc, Barrier};

use tokio::runtime::Handle;

/// Runs one task for each of `0..count`, all started together, and returns their results in order.
///
/// On a single-threaded runtime tasks only switch at await points. Callers that should meet inside
/// a driver need threads.
pub async fn run_on_threads<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(Barrier::new(count));
    let handle = Handle::current();
    let running: Vec<_> = (0..count)
        .map(|number| {
            let (task, start, handle) = (task(number), start.clone(), handle.clone());
            tokio::task::spawn_blocking(move || {
                start.wait();
                handle.block_on(task)
            })
        })
        .collect();
    let mut answers = Vec::with_capacity(count);
    for task in running {
        answers.push(task.await.unwrap());
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use tokio::sync::Barrier;

    #[tokio::test]
    async fn everyone_is_there_at_once_and_answers_in_order() {
        let meeting = Arc::new(Barrier::new(5));
        let answers = super::run_on_threads(5, |number| {
            let meeting = meeting.clone();
            async move {
                meeting.wait().await;
                number
            }
        });
        assert_eq!(answers.await, [0, 1, 2, 3, 4]);
    }
}
