//! A second core for independent work, where there is one.
//!
//! These functions use plain threads. A thread of rayon that waits may run any other job of its pool; if that job needs
//! the value of a `OnceLock` which the waiting one is about to fill in, neither ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Whether a second thread would have a core to itself: not within a parallel job, which occupies all of them.
fn has_free_core() -> bool {
    rayon::current_thread_index().is_none() && rayon::current_num_threads() > 1
}

/// The results of `first` and `second`, which run at the same time where a core is free.
pub fn join<A, B: Send>(first: impl FnOnce() -> A, second: impl FnOnce() -> B + Send) -> (A, B) {
    if !has_free_core() {
        return (first(), second());
    }
    thread::scope(|scope| {
        let other = scope.spawn(second);
        (first(), finish(other))
    })
}

/// The results of `work` for each of `items`, in their order, on as many threads as there are cores.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let count = rayon::current_num_threads().min(items.len());
    if count < 2 || !has_free_core() {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let threads = (0..count).map(|_| {
            scope.spawn(|| {
                let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                numbers.map_while(|index| Some((index, work(items.get(index)?)))).collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(finish).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The result of `consume`, which takes `items`; those are made at the same time where a core is free.
pub fn feed<I: Iterator<Item: Send>, R>(
    items: impl FnOnce() -> I + Send,
    consume: impl FnOnce(&mut dyn Iterator<Item = I::Item>) -> R,
) -> R {
    if !has_free_core() {
        return consume(&mut items());
    }
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(1);
        scope.spawn(move || items().try_for_each(|item| sender.send(item)));
        consume(&mut receiver.into_iter())
    })
}

/// Drops `value`, where a core is free while the program goes on.
pub fn drop_aside(value: impl Send + 'static) {
    if has_free_core() {
        thread::spawn(move || drop(value));
    }
}

/// The result of `thread`; its panic goes on in this one.
fn finish<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_items() {
        let items: Vec<u64> = (0..1000).collect();
        assert_eq!(map(&items, |n| n * n), items.iter().map(|n| n * n).collect::<Vec<_>>());
        assert!(map(&[] as &[u64], |n| *n).is_empty());
        assert_eq!(join(|| 1, || "two"), (1, "two"));
        assert_eq!(feed(|| 0..1000, |numbers| numbers.sum::<u64>()), 499_500);
        assert_eq!(feed(|| 0.., |numbers| numbers.nth(5)), Some(5));
    }
}
