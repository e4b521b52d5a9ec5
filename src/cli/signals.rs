//! Signals that end the program: it removes its temporary files first.

#[cfg(unix)]
use self::unix::watch;
#[cfg(unix)]
pub(super) use self::unix::{handled_by, ignored_signals, is_interrupted_by_terminal, process_exists, process_name};

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

/// The temporary files that exist now.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Keeps a path in [`TEMPORARY`] until it is dropped.
#[derive(Debug)]
pub(super) struct TemporaryPath(PathBuf);

/// Creates a temporary file, which is removed if a signal ends the program.
pub(super) fn create_temporary(
    create: impl FnOnce() -> io::Result<NamedTempFile>,
) -> io::Result<(NamedTempFile, TemporaryPath)> {
    #[cfg(unix)]
    watch();
    // The lock is held from before the file exists, so that a signal finds it in the list.
    let mut files = temporary();
    let file = create()?;
    let path = std::path::absolute(&file).unwrap_or_else(|_| file.path().to_owned());
    files.push(path.clone());
    Ok((file, TemporaryPath(path)))
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        temporary().retain(|path| *path != self.0);
    }
}

/// A signal ends the program before or after `task`.
pub(super) fn without_interruption<T>(task: impl FnOnce() -> T) -> T {
    let _files = temporary();
    task()
}

fn temporary() -> MutexGuard<'static, Vec<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(not(unix))]
pub(super) fn process_exists(_: &str) -> bool {
    true
}

#[cfg(not(unix))]
pub(super) fn process_name() -> String {
    std::process::id().to_string()
}

#[cfg(not(unix))]
pub(super) fn handled_by<T>(task: impl FnOnce() -> T) -> T {
    task()
}

#[cfg(unix)]
mod unix {
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, Ordering};

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    /// Something else handles the signals.
    static IS_HANDLED: AtomicBool = AtomicBool::new(false);

    /// From now on, signals that end the program remove the temporary files.
    pub(in crate::cli) fn watch() {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            let ignored = ignored_signals();
            let ending = [SIGHUP, SIGINT, SIGTERM];
            // Without the signals, temporary files stay, as they do with SIGKILL.
            let Ok(mut signals) = Signals::new(ending.iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0))
            else {
                return;
            };
            std::thread::spawn(move || {
                for signal in signals.forever() {
                    if IS_HANDLED.load(Ordering::SeqCst) {
                        continue;
                    }
                    // The lock is kept, so that no other file is created or renamed.
                    let mut files = super::temporary();
                    for path in files.drain(..) {
                        let _ = std::fs::remove_file(path);
                    }
                    let _ = emulate_default_handler(signal);
                }
            });
        });
    }

    /// Signals do not end the program while `task` runs, which handles them or forwards them to a command.
    pub(in crate::cli) fn handled_by<T>(task: impl FnOnce() -> T) -> T {
        IS_HANDLED.store(true, Ordering::SeqCst);
        let result = task();
        IS_HANDLED.store(false, Ordering::SeqCst);
        result
    }

    /// Whether Ctrl-C in a terminal sends SIGINT to this process, and to all others of its group.
    pub(in crate::cli) fn is_interrupted_by_terminal() -> bool {
        let terminal = std::fs::File::open("/dev/tty");
        terminal.is_ok_and(|terminal| rustix::termios::tcgetpgrp(terminal) == Ok(rustix::process::getpgrp()))
    }

    /// The name of this host.
    fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// `HOST-PID` of this process.
    pub(in crate::cli) fn process_name() -> String {
        format!("{}-{}", host(), std::process::id())
    }

    /// False if the process `HOST-PID` has ended. One on another host counts as running.
    pub(in crate::cli) fn process_exists(name: &str) -> bool {
        use rustix::process::{Pid, test_kill_process};
        // A name that is not HOST-PID shows nothing, so its process may be running.
        let Some((on, pid)) = name.rsplit_once('-') else { return true };
        match pid.parse().ok().and_then(Pid::from_raw) {
            Some(pid) if on == host() => test_kill_process(pid) != Err(rustix::io::Errno::SRCH),
            _ => true,
        }
    }

    /// A bit for each signal that this process ignores; 0 on systems without /proc.
    pub(in crate::cli) fn ignored_signals() -> u64 {
        // Few parents ignore signals, so without a readable mask all of them are caught.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }
}
