//! Signals that end the program: it removes its temporary files first.

#[cfg(unix)]
pub(super) use self::unix::{
    SignalThread, catch, handled_by, is_interrupted_by_terminal, process_exists, process_name,
};

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
    unix::watch();
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
    use std::io;
    use std::sync::{Mutex, PoisonError};
    use std::thread::JoinHandle;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::{Handle, Signals};
    use signal_hook::low_level::emulate_default_handler;

    /// The thread that removes the temporary files, if it runs.
    static WATCHER: Mutex<Option<SignalThread>> = Mutex::new(None);

    /// A thread that acts on signals until this is dropped.
    #[derive(Debug)]
    pub(in crate::cli) struct SignalThread {
        handle: Handle,
        thread: Option<JoinHandle<()>>,
    }

    impl SignalThread {
        /// Calls `handle_signal` with the number of each of `signals`.
        pub(in crate::cli) fn start(mut signals: Signals, handle_signal: impl Fn(i32) + Send + 'static) -> Self {
            let handle = signals.handle();
            let thread = std::thread::spawn(move || signals.forever().for_each(handle_signal));
            Self { handle, thread: Some(thread) }
        }
    }

    impl Drop for SignalThread {
        fn drop(&mut self) {
            self.handle.close();
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }

    /// Catches those of `signals` that the parent process does not ignore (nohup); ignored ones stay so, also for a command.
    pub(in crate::cli) fn catch(signals: &[i32]) -> io::Result<Signals> {
        let ignored = ignored_signals();
        Signals::new(signals.iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0))
    }

    /// From now on, signals that end the program remove the temporary files.
    pub(super) fn watch() {
        let mut watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
        if watcher.is_none() {
            // Without the signals, temporary files stay, as they do with SIGKILL.
            *watcher = catch(&[SIGHUP, SIGINT, SIGTERM]).ok().map(|signals| SignalThread::start(signals, end_program));
        }
    }

    fn end_program(signal: i32) {
        // The lock is kept, so that no other file is created or renamed.
        let mut files = super::temporary();
        for path in files.drain(..) {
            let _ = std::fs::remove_file(path);
        }
        let _ = emulate_default_handler(signal);
    }

    /// Signals do not end the program while `task` runs, which handles them or forwards them to a command.
    pub(in crate::cli) fn handled_by<T>(task: impl FnOnce() -> T) -> T {
        // A thread that only skipped them could come to a signal after the task, and end the program.
        drop(WATCHER.lock().unwrap_or_else(PoisonError::into_inner).take());
        let result = task();
        watch();
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
    fn ignored_signals() -> u64 {
        // Few parents ignore signals, so without a readable mask all of them are caught.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }
}
