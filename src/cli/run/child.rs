//! Starts the command with the recorder on its PYTHONPATH, forwards signals, and waits for it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::anyhow;

use super::directory::RunDirectory;
use crate::analysis::ProgramEnd;
use crate::cli::exit::print_stderr;
use crate::cli::signals::handled_by;

/// Exit codes of a shell for a command that is not found, or cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;
/// A shell adds this to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum CommandEnd {
    Code(u8),
    Signal(i32),
    /// It did not start, and a message gave the reason; the exit code of a shell for that.
    NotRun(u8),
}

impl CommandEnd {
    fn from_status(status: ExitStatus) -> Self {
        match (signals::terminating_signal(status), status.code()) {
            (Some(signal), _) => Self::Signal(signal),
            // Codes of Windows have 32 bits; one that does not fit is reported as 1.
            (None, code) => Self::Code(code.map_or(1, |code| u8::try_from(code).unwrap_or(1))),
        }
    }

    pub(in crate::cli) fn program_end(self) -> ProgramEnd {
        match self {
            Self::Code(code) | Self::NotRun(code) => ProgramEnd::Code(code),
            Self::Signal(signal) => ProgramEnd::Signal(signal),
        }
    }

    pub(in crate::cli) fn code(self) -> u8 {
        match self {
            Self::Code(code) | Self::NotRun(code) => code,
            Self::Signal(signal) => u8::try_from(SIGNALLED + signal).unwrap_or(1),
        }
    }
}

/// Where the output of a command goes.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) enum CommandOutput<'f> {
    /// Where that of this program goes.
    Inherited,
    /// Both streams to standard error, because standard output has the result of this program.
    OnStderr,
    /// Both streams to a file; standard input is empty.
    Log(&'f File),
}

/// Runs `command` to its end; without a `directory` it is not recorded.
pub(super) fn run(
    command: &[OsString],
    directory: Option<&RunDirectory>,
    output: CommandOutput<'_>,
) -> anyhow::Result<CommandEnd> {
    let Some((program, args)) = command.split_first() else {
        return Err(anyhow!("no command"));
    };
    let mut command = Command::new(program);
    command.args(args);
    if let Some(directory) = directory {
        let control = directory.control_dir();
        let others = env::var_os("PYTHONPATH").filter(|path| !path.is_empty());
        let others = others.iter().flat_map(env::split_paths);
        let path = env::join_paths(std::iter::once(control.clone()).chain(others))
            .map_err(|_| anyhow!("{}: PYTHONPATH cannot hold this name", control.display()))?;
        command
            .envs(directory.environment.iter().cloned())
            .env("PYTHONPATH", path)
            .env("OOMSCOPE_DIR", &directory.path);
    }
    match output {
        CommandOutput::Inherited => {}
        CommandOutput::OnStderr => {
            command.stdout(io::stderr());
        }
        CommandOutput::Log(log) => {
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        }
    }
    let signals = signals::SignalForwarder::new()?;
    // From before the start: a signal that comes before it is forwarded ends nothing.
    handled_by(|| match command.spawn() {
        Ok(mut child) => {
            let forwarding = signals.forward_to(child.id());
            let status = child.wait();
            drop(forwarding);
            Ok(CommandEnd::from_status(status?))
        }
        Err(error) => Ok(not_run(program, &error)),
    })
}

fn not_run(program: &OsStr, error: &io::Error) -> CommandEnd {
    print_stderr(&format!("{}: {error}", program.display()));
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    CommandEnd::NotRun(if is_missing { NOT_FOUND } else { NOT_RUN })
}

#[cfg(unix)]
mod signals {
    use std::io;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use rustix::process::{Pid, Signal, kill_process};
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    use signal_hook::iterator::Signals;

    use crate::cli::signals::{SignalThread, catch, is_interrupted_by_terminal};

    /// Signals for the command. A terminal sends SIGINT and SIGQUIT to the command as well, so these are then caught but
    /// not forwarded, and the command decides what they do.
    const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

    pub(super) fn terminating_signal(status: ExitStatus) -> Option<i32> {
        status.signal()
    }

    /// Catches signals from its creation.
    pub(super) struct SignalForwarder(Signals);

    impl SignalForwarder {
        pub(super) fn new() -> io::Result<Self> {
            catch(&FORWARDED).map(Self)
        }

        /// Forwards signals to `child` until the result is dropped.
        pub(super) fn forward_to(self, child: u32) -> SignalThread {
            let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
            SignalThread::start(self.0, move |signal| {
                let signal = match signal {
                    SIGHUP => Signal::HUP,
                    SIGTERM => Signal::TERM,
                    SIGUSR1 => Signal::USR1,
                    SIGUSR2 => Signal::USR2,
                    _ if is_interrupted_by_terminal() => return,
                    SIGINT => Signal::INT,
                    _ => Signal::QUIT,
                };
                // The command may have ended just now.
                let _ = pid.map(|pid| kill_process(pid, signal));
            })
        }
    }
}

#[cfg(not(unix))]
mod signals {
    //! Windows has only Ctrl-C, which the console also sends to the command.

    use std::io;
    use std::process::ExitStatus;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use signal_hook::SigId;
    use signal_hook::consts::SIGINT;

    pub(super) fn terminating_signal(_: ExitStatus) -> Option<i32> {
        None
    }

    /// Ignores Ctrl-C, so that the command decides what it does.
    pub(super) struct SignalForwarder(SigId);

    impl SignalForwarder {
        pub(super) fn new() -> io::Result<Self> {
            signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false))).map(Self)
        }

        pub(super) fn forward_to(self, _child: u32) -> Self {
            self
        }
    }

    impl Drop for SignalForwarder {
        fn drop(&mut self) {
            signal_hook::low_level::unregister(self.0);
        }
    }
}
