//! Processes items on all cores and passes the results on in the order of the items, each as soon as possible.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

/// Calls `process` with each of `items` on all cores, and `receive` with each result, in the order of the items, on
/// this thread. Ends early when `receive` breaks.
pub(super) fn process_in_order<'a, T: Sync, R: Send>(
    items: &'a [T],
    process: impl Fn(&T) -> R + Sync,
    mut receive: impl FnMut(&'a T, R) -> ControlFlow<()>,
) {
    if let [only] = items {
        // On this thread, where a single file may use the other cores.
        let _ = receive(only, process(only));
        return;
    }
    let taken = AtomicUsize::new(0);
    let (senders, results): (Vec<_>, Vec<_>) = items.iter().map(|_| channel()).unzip();
    std::thread::scope(|scope| {
        let (taken, process) = (&taken, &process);
        // One loop for each thread of the pool. A job per item would let a thread that waits within one item begin
        // another, and hold both. The loops end when nobody receives their results.
        scope.spawn(move || {
            rayon::broadcast(|_| {
                let turns = std::iter::repeat_with(|| taken.fetch_add(1, Ordering::Relaxed));
                for (at, item) in turns.map_while(|at| Some((at, items.get(at)?))) {
                    if senders[at].send(process(item)).is_err() {
                        break;
                    }
                }
            })
        });
        for (item, result) in items.iter().zip(results) {
            // Without a result the work has panicked, as the end of the scope does then.
            let Ok(result) = result.recv() else { return };
            if receive(item, result).is_break() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn double_slowly(item: usize) -> usize {
        if item.is_multiple_of(500) {
            std::thread::sleep(Duration::from_millis(20));
        }
        item * 2
    }

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<usize> = (0..2000).collect();
        let mut received = Vec::new();
        process_in_order(
            &items,
            |item| double_slowly(*item),
            |item, result| {
                assert_eq!(*item * 2, result);
                received.push(*item);
                ControlFlow::Continue(())
            },
        );
        assert_eq!(received, items);
        process_in_order(&[] as &[usize], |item| *item, |_, _| panic!("nothing was processed"));
    }

    #[test]
    fn a_break_ends_the_work() {
        let items: Vec<usize> = (0..10_000).collect();
        let processed = AtomicUsize::new(0);
        process_in_order(
            &items,
            |_| {
                std::thread::sleep(Duration::from_millis(1));
                processed.fetch_add(1, Ordering::SeqCst)
            },
            |_, _| ControlFlow::Break(()),
        );
        assert!(processed.load(Ordering::SeqCst) < 1000);
    }
}
