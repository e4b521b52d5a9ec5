//! A progress bar on standard error, for files that take a while.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown for work that is done sooner.
const PATIENCE: Duration = Duration::from_millis(500);

/// Progress over all bytes to read. Shared by threads.
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    /// For `total` bytes in `files` files. Silent unless standard error is a terminal.
    pub(super) fn new(total: u64, files: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let template = match files {
            1 => "reading {bar:30} {bytes}/{total_bytes}",
            _ => "reading {msg} {bar:30} {bytes}/{total_bytes}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(format!("{files} files"));
        Self { bar, started: Instant::now() }
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
