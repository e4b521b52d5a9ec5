//! The command itself: started with the recorder on its path, given the signals that come, waited for.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::anyhow;

use super::directory::Directory;
use crate::cli::exit::complain;

/// As a shell says that a command is not there, and that it cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;
/// What a shell adds to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Ended {
    /// With this exit code.
    With(u8),
    /// By this signal.
    By(i32),
    /// It never ran, which has been said.
    NotRun(u8),
}

impl Ended {
    fn of(status: ExitStatus) -> Self {
        match (signals::ended_by(status), status.code()) {
            (Some(signal), _) => Self::By(signal),
            // Windows has codes of 32 bits: what does not fit is a failure all the same.
            (None, code) => Self::With(code.map_or(1, |code| u8::try_from(code).unwrap_or(1))),
        }
    }

    /// The exit code to end with.
    pub(in crate::cli) fn code(self) -> u8 {
        match self {
            Self::With(code) | Self::NotRun(code) => code,
            Self::By(signal) => u8::try_from(SIGNALLED + signal).unwrap_or(1),
        }
    }
}

/// Runs `command` to its end; what it says goes to `log`, where there is one.
pub(super) fn run(
    command: &[OsString],
    directory: &Directory,
    log: Option<&File>,
) -> anyhow::Result<Ended> {
    let Some((program, args)) = command.split_first() else {
        return Err(anyhow!("no command"));
    };
    let control = directory.control();
    let others = env::var_os("PYTHONPATH").filter(|path| !path.is_empty());
    let others = others.iter().flat_map(env::split_paths);
    let path = env::join_paths(std::iter::once(control.clone()).chain(others))
        .map_err(|_| anyhow!("{}: PYTHONPATH cannot hold this name", control.display()))?;
    let mut command = Command::new(program);
    command
        .args(args)
        .envs(directory.environment().iter().cloned())
        .env("PYTHONPATH", path)
        .env("OOMSCOPE_DIR", directory.path());
    if let Some(log) = log {
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
    }
    let signals = signals::Forwarded::new()?;
    match command.spawn() {
        Ok(mut child) => {
            let forwarding = signals.to(child.id());
            let status = child.wait();
            drop(forwarding);
            Ok(Ended::of(status?))
        }
        Err(error) => Ok(not_run(program, &error)),
    }
}

fn not_run(program: &OsStr, error: &io::Error) -> Ended {
    complain(&format!("{}: {error}", program.display()));
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    Ended::NotRun(if is_missing { NOT_FOUND } else { NOT_RUN })
}

#[cfg(unix)]
mod signals {
    use std::io;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;
    use std::thread::JoinHandle;

    use rustix::process::{Pid, Signal, kill_process};
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    use signal_hook::iterator::{Handle, Signals};

    /// Signals that the command gets in our place. A terminal sends SIGINT and SIGQUIT to both: those are passed
    /// over here, and what the command makes of them decides.
    const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

    /// The signal that ended the command.
    pub(super) fn ended_by(status: ExitStatus) -> Option<i32> {
        status.signal()
    }

    /// Catches them from now on.
    pub(super) struct Forwarded(Signals);

    impl Forwarded {
        pub(super) fn new() -> io::Result<Self> {
            let ignored = ignored();
            // What whoever started us ignores, as nohup does, the command is to ignore too.
            Signals::new(FORWARDED.iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0))
                .map(Self)
        }

        /// Sends them to `child` until the result is dropped.
        pub(super) fn to(self, child: u32) -> Forwarding {
            let Self(mut signals) = self;
            let handle = signals.handle();
            let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
            let thread = std::thread::spawn(move || {
                for signal in signals.forever() {
                    let signal = match signal {
                        SIGHUP => Signal::HUP,
                        SIGTERM => Signal::TERM,
                        SIGUSR1 => Signal::USR1,
                        SIGUSR2 => Signal::USR2,
                        _ => continue,
                    };
                    // It may have ended just now.
                    let _ = pid.map(|pid| kill_process(pid, signal));
                }
            });
            Forwarding { handle, thread: Some(thread) }
        }
    }

    pub(super) struct Forwarding {
        handle: Handle,
        thread: Option<JoinHandle<()>>,
    }

    impl Drop for Forwarding {
        fn drop(&mut self) {
            self.handle.close();
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }

    /// A bit for each signal that this process ignores; none where the system does not tell.
    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }
}

#[cfg(not(unix))]
mod signals {
    //! There are none, but Ctrl-C, which the console tells the command, too: what that makes of it decides.

    use std::io;
    use std::process::ExitStatus;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use signal_hook::SigId;
    use signal_hook::consts::SIGINT;

    pub(super) fn ended_by(_: ExitStatus) -> Option<i32> {
        None
    }

    /// Outlives a Ctrl-C from now on.
    pub(super) struct Forwarded(SigId);

    impl Forwarded {
        pub(super) fn new() -> io::Result<Self> {
            signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false))).map(Self)
        }

        pub(super) fn to(self, _child: u32) -> Self {
            self
        }
    }

    impl Drop for Forwarded {
        fn drop(&mut self) {
            signal_hook::low_level::unregister(self.0);
        }
    }
}
