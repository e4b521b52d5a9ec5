//! `oomscope explore`

mod messages;
mod screen;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context as _, bail};
use clap::Args;

use self::messages::{Message, read_inputs, work};
use self::screen::Screen;
use super::args::{gpu_or, parse_capacity};
use super::exit::Exit;
use super::inputs;
use super::output::supports_unicode;
use super::source::{SourceArgs, SourceDirectory};
use crate::explore::{Colours, Effect, Look, State, draw};
use crate::snapshot::Snapshot;
use crate::study::{DeviceStudy, Scope, Study};

/// Explore it in the terminal: over time, by address, by holder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope explore snapshot.pickle            opens at the last failed request, else at the peak
  ssh node oomscope explore snapshot.pickle   nothing to copy; only what changed is sent

Keys:
  1 2 3       memory over time, map, holders
  ← → w s     move by an entry, zoom in and out
  p o [ ]     the peak, the next failure, the previous and next step
  : /         go to an entry or a step; search lines and names
  Enter       the stack with its source
  d ? q       the difference to another moment, all keys, leave

It writes no file. Without a terminal, oomscope analyze shows the same facts.

Exit codes: 0 success; 2 wrong usage, no terminal, or an unreadable file.")]
pub(super) struct Explore {
    /// Snapshot, or the directory of one; - for standard input
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,

    /// Show only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Device memory: 80GiB, or a GPU such as h100; snapshots do not record it
    #[arg(long, visible_alias = "gpu", value_name = "SIZE|GPU", value_parser = gpu_or(parse_capacity), hide_possible_values = true)]
    capacity: Option<u64>,

    #[command(flatten)]
    source: SourceArgs,
}

/// The screen, and what it shows.
struct Session {
    scope: Scope,
    source: SourceDirectory,
    screen: Screen,
    look: Look,
    messages: Receiver<Message>,
    sender: Sender<Message>,
}

pub(super) fn run(args: &Explore) -> anyhow::Result<Exit> {
    let path = inputs::single_snapshot(&args.snapshot)?;
    let name = path.display().to_string();
    if !io::stdout().is_terminal() {
        bail!("explore draws on a terminal, and standard output is none; use `oomscope analyze {name}`");
    }
    let source = args.source.open_at(true)?;
    let scope = Scope { device: args.device, capacity: args.capacity, ..Scope::default() };
    let snapshot = inputs::read_one(&path)?;
    let Some(device) = worst_device(&Study::new(&snapshot, scope)) else {
        bail!("{name}: holds no memory and no trace");
    };
    let (sender, messages) = channel();
    let screen = Screen::open().context("the terminal cannot be used")?;
    let session = Session { scope, source, screen, look: look(), messages, sender };
    read_inputs(session.sender.clone());
    show_file(session, name, device, snapshot)?;
    Ok(Exit::Success)
}

/// Shows devices of a file until the user leaves. The thread that does it owns the file: the program does not wait for the
/// work in the background.
fn show_file(mut session: Session, name: String, device: u64, mut snapshot: Snapshot) -> anyhow::Result<()> {
    let (done, wait) = channel();
    thread::spawn(move || {
        session.source.add_to(&mut snapshot);
        let study = Study::new(&snapshot, session.scope);
        thread::scope(|scope| {
            let shown = session.show_devices(scope, &study, &name, device);
            drop(session); // restores the terminal
            let _ = done.send(shown);
        });
    });
    wait.recv().context("the screen could not be drawn")?.map_err(Into::into)
}

/// The first device with a failed request, else the first with a trace, else the first.
fn worst_device(study: &Study<'_>) -> Option<u64> {
    let key = |device: &DeviceStudy<'_, '_>| (device.failed_requests().next().is_some(), !device.device().is_empty());
    study.devices().rev().max_by_key(key).map(DeviceStudy::id)
}

/// The capabilities of the terminal, from the environment.
fn look() -> Look {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let colours = match (anstream::AutoStream::choice(&io::stdout()), variable("COLORTERM"), variable("TERM")) {
        (anstream::ColorChoice::Never, ..) => Colours::None,
        (_, term, _) if term == "truecolor" || term == "24bit" => Colours::True,
        (_, _, term) if term.contains("256") || term.contains("direct") => Colours::Indexed,
        _ => Colours::Ansi,
    };
    Look { colours, unicode: supports_unicode(true) }
}

impl Session {
    /// Shows the devices of `study`, each until the user goes to the next one, from `first` on.
    fn show_devices<'s, 'e>(
        &mut self,
        scope: &'s thread::Scope<'s, 'e>,
        study: &'e Study<'_>,
        name: &str,
        first: u64,
    ) -> io::Result<()> {
        let ids: Vec<u64> = study.devices().map(DeviceStudy::id).collect();
        let start = ids.iter().position(|id| *id == first).unwrap_or(0);
        for id in ids.iter().cycle().skip(start) {
            let Some(device) = study.device(*id) else { continue };
            if self.show(scope, study, device, name)? == Effect::Leave {
                break;
            }
        }
        Ok(())
    }

    /// Shows one device until the user leaves it.
    fn show<'s, 'e, 'a>(
        &mut self,
        scope: &'s thread::Scope<'s, 'e>,
        study: &'e Study<'a>,
        device: DeviceStudy<'e, 'a>,
        name: &str,
    ) -> io::Result<Effect> {
        let mut state = State::new(device, name, study.devices().count() > 1);
        // The first frame needs nothing; all is worked out behind it.
        work(scope, study, device, name.to_owned(), self.sender.clone());
        loop {
            let look = self.look;
            self.screen.draw(|buffer| draw(&state, buffer, look))?;
            match self.turn(&mut state, device.id()) {
                Effect::Draw => {}
                effect => return Ok(effect),
            }
        }
    }

    /// Takes everything that waits, so that a slow terminal draws once for many keys.
    fn turn(&mut self, state: &mut State<'_, '_>, device: u64) -> Effect {
        let mut next = self.messages.recv().ok();
        while let Some(message) = next {
            match message {
                Message::Closed => return Effect::Leave,
                Message::Key(key) => match state.handle(key) {
                    Effect::Draw => {}
                    effect => return effect,
                },
                Message::Recording(of, loaded) if of == device => state.set_recording(*loaded),
                Message::Analysis(of, analyzed) if of == device => state.set_analysis(analyzed),
                // The others are of a device that was left.
                Message::Resized | Message::Recording(..) | Message::Analysis(..) => {}
            }
            next = self.messages.try_recv().ok();
        }
        Effect::Draw
    }
}
