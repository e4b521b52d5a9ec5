//! A progress bar on standard error, for work that takes a while.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter work shows no bar.
const SHOW_AFTER: Duration = Duration::from_millis(500);

/// A progress bar, shared by threads.
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    /// For `total` bytes in `files` files. Silent unless standard error is a terminal.
    pub(super) fn new(total: u64, files: usize) -> Self {
        let template = match files {
            1 => "reading {bar:30} {bytes}/{total_bytes}",
            _ => "reading {msg} {bar:30} {bytes}/{total_bytes}",
        };
        let progress = Self::with(total, template);
        progress.bar.set_message(format!("{files} files"));
        progress
    }

    /// For replays, whose number [`Progress::set_done`] sets.
    pub(super) fn for_replays() -> Self {
        Self::with(0, "replaying {bar:30} {pos}/{len} settings")
    }

    fn with(total: u64, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, started: Instant::now() }
    }

    pub(super) fn set_done(&self, done: usize, all: usize) {
        self.bar.set_length(all as u64);
        self.add((done as u64).saturating_sub(self.bar.position()));
    }

    /// Adds the first `bytes` of a file, without those already `seen`.
    pub(super) fn advance(&self, seen: &AtomicU64, bytes: u64) {
        self.add(bytes.saturating_sub(seen.fetch_max(bytes, Ordering::Relaxed)));
    }

    /// Adds `bytes` to the progress.
    fn add(&self, bytes: u64) {
        if self.bar.is_hidden() && self.started.elapsed() >= SHOW_AFTER && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
