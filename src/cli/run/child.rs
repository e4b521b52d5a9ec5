//! Starts the command with the recorder on its PYTHONPATH, forwards signals, and waits for it.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, anyhow};

use super::directory::{RunDirectory, RunStatus};
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
    /// Both streams to a new file; standard input is empty.
    Log(&'f Path),
}

/// A command that has ended, what its processes did, and their snapshots.
pub(in crate::cli) struct Recorded {
    pub(in crate::cli) end: CommandEnd,
    pub(in crate::cli) status: RunStatus,
    pub(in crate::cli) snapshots: Vec<PathBuf>,
}

/// Runs `command` with the recorder of `directory`.
pub(in crate::cli) fn record(
    command: &[OsString],
    directory: RunDirectory,
    output: CommandOutput<'_>,
) -> anyhow::Result<Recorded> {
    let end = run(command, Some(&directory), output);
    let (status, snapshots) = directory.finish();
    Ok(Recorded { end: end?, status, snapshots })
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
        CommandOutput::Log(path) => {
            let log = File::create(path).with_context(|| format!("{}: cannot be written", path.display()))?;
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        }
    }
    let caught = signals::catch_forwarded()?;
    // From before the start: a signal that comes before it is forwarded ends nothing.
    handled_by(|| match command.spawn() {
        Ok(mut child) => {
            let forwarding = signals::forward(caught, child.id());
            let status = child.wait();
            drop(forwarding);
            Ok(CommandEnd::from_status(status?))
        }
        Err(error) => {
            print_stderr(&format!("{}: {error}", program.display()));
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            Ok(CommandEnd::NotRun(if is_missing { NOT_FOUND } else { NOT_RUN }))
        }
    })
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

    /// From now on signals do not end this program.
    pub(super) fn catch_forwarded() -> io::Result<Signals> {
        catch(&FORWARDED)
    }

    /// Forwards `signals` to `child` until the result is dropped.
    pub(super) fn forward(signals: Signals, child: u32) -> SignalThread {
        let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
        SignalThread::start(signals, move |signal| {
            if matches!(signal, SIGINT | SIGQUIT) && is_interrupted_by_terminal() {
                return;
            }
            // The command may have ended just now.
            let _ = pid.zip(Signal::from_named_raw(signal)).map(|(pid, signal)| kill_process(pid, signal));
        })
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

    /// Ignores Ctrl-C until it is dropped, so that the command decides what it does.
    pub(super) struct IgnoredInterrupt(SigId);

    pub(super) fn catch_forwarded() -> io::Result<IgnoredInterrupt> {
        signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false))).map(IgnoredInterrupt)
    }

    pub(super) fn forward(ignored: IgnoredInterrupt, _child: u32) -> IgnoredInterrupt {
        ignored
    }

    impl Drop for IgnoredInterrupt {
        fn drop(&mut self) {
            signal_hook::low_level::unregister(self.0);
        }
    }
}
