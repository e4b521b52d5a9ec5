//! A progress bar on standard error, for work that takes a while.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown for work that is done sooner.
const PATIENCE: Duration = Duration::from_millis(500);

/// Progress over everything to be done. Shared by threads.
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

    /// For replays, of a number that is told with [`Progress::done`].
    pub(super) fn of_replays() -> Self {
        Self::with(0, "replaying {bar:30} {pos}/{len} settings")
    }

    fn with(total: u64, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, started: Instant::now() }
    }

    /// `done` of `all` are done.
    pub(super) fn done(&self, done: usize, all: usize) {
        self.bar.set_length(all as u64);
        self.at(done as u64);
    }

    /// `bytes` more were read.
    pub(super) fn add(&self, bytes: u64) {
        if self.bar.is_hidden() && self.started.elapsed() >= PATIENCE && io::stderr().is_terminal()
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(bytes);
    }
}

impl Progress {
    /// The first `bytes` were read.
    pub(super) fn at(&self, bytes: u64) {
        self.add(bytes.saturating_sub(self.bar.position()));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
