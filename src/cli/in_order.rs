//! Processes items on all cores and passes the results on in the order of the items, each as soon as possible.
//!
//! Few results wait for an earlier one, so memory does not grow with the number of items.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Number of items, from the first that has not been received, that may be processed: one slow file among fast ones
/// holds up no core for long.
const MAX_AHEAD: usize = 256;

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
    let turns = Turns::default();
    std::thread::scope(|scope| {
        let (sender, results) = channel();
        let (turns, process) = (&turns, &process);
        // One loop for each thread of the pool. A job per item would let a thread that waits within one item begin
        // another, and hold both.
        scope.spawn(move || {
            rayon::broadcast(|_| {
                while let Some((index, item)) = turns.take().and_then(|index| Some((index, items.get(index)?))) {
                    // Without a receiver nobody needs the result.
                    let _ = sender.send((index, process(item)));
                }
            })
        });
        let mut waiting = BTreeMap::new();
        let mut remaining = items.iter().enumerate().peekable();
        for (index, result) in results {
            waiting.insert(index, result);
            while let Some((next, item)) = remaining.peek().copied()
                && let Some(result) = waiting.remove(&next)
            {
                remaining.next();
                if receive(item, result).is_break() {
                    turns.stop();
                    return;
                }
                turns.received();
            }
        }
    });
}

/// Which item is next, and how far the receiver is.
#[derive(Default)]
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    taken: usize,
    received: usize,
    is_stopped: bool,
}

impl Turns {
    /// The index of the next item; waits while too many results wait for an earlier one.
    fn take(&self) -> Option<usize> {
        let is_far_ahead = |state: &mut State| !state.is_stopped && state.taken >= state.received + MAX_AHEAD;
        let waited = self.changed.wait_while(self.lock(), is_far_ahead);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_stopped {
            return None;
        }
        state.taken += 1;
        Some(state.taken - 1)
    }

    fn received(&self) {
        self.lock().received += 1;
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<usize> = (0..2000).collect();
        let mut received = Vec::new();
        let process = |item: &usize| {
            if item.is_multiple_of(500) {
                std::thread::sleep(Duration::from_millis(20));
            }
            item * 2
        };
        process_in_order(&items, process, |item, result| {
            assert_eq!(*item * 2, result);
            received.push(*item);
            ControlFlow::Continue(())
        });
        assert_eq!(received, items);
        process_in_order(&[] as &[usize], |item| *item, |_, _| panic!("nothing was processed"));
    }

    #[test]
    fn few_results_wait_and_a_break_ends_the_work() {
        let items: Vec<usize> = (0..10_000).collect();
        let processed = AtomicUsize::new(0);
        let mut received = 0;
        process_in_order(
            &items,
            |item| {
                if *item == 0 {
                    std::thread::sleep(Duration::from_millis(50));
                }
                processed.fetch_add(1, Ordering::SeqCst)
            },
            |_, _| {
                assert!(processed.load(Ordering::SeqCst) <= received + MAX_AHEAD + rayon::current_num_threads());
                received += 1;
                if received == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(received, 1000);
        assert!(processed.load(Ordering::SeqCst) <= 1000 + MAX_AHEAD + rayon::current_num_threads());
    }
}
