//! `oomscope explore`

mod messages;
mod screen;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context as _, bail};
use clap::Args;

use self::messages::{Message, read_inputs, work};
use self::screen::Screen;
use super::args::{gpu_or, parse_capacity};
use super::exit::Exit;
use super::inputs;
use super::output::supports_unicode;
use super::source::SourceArgs;
use crate::explore::{Colours, Effect, Look, State, draw};
use crate::study::{DeviceStudy, Scope, Study};

/// Explore it in the terminal: over time, by address, by holder
#[derive(Debug, Args)]
#[command(after_help = include_str!("../help/explore.txt"))]
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
    study: &'static Study<'static>,
    name: String,
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
    let mut snapshot = inputs::read_one(&path)?;
    let Some(device) = worst_device(&Study::new(&snapshot, scope)) else {
        bail!("{name}: holds no memory and no trace");
    };
    let (sender, messages) = channel();
    let screen = Screen::open().context("the terminal cannot be used")?;
    read_inputs(sender.clone());
    source.add_to(&mut snapshot);
    // Never freed: the work in the background uses it, and the end of the program does not wait for that.
    let study = Box::leak(Box::new(Study::new(Box::leak(Box::new(snapshot)), scope)));
    let mut session = Session { study, name, screen, look: look(), messages, sender };
    session.show_devices(device).context("the screen could not be drawn")?;
    Ok(Exit::Success)
}

/// The first device with a failed request, else the first with a trace, else the first.
fn worst_device(study: &Study<'_>) -> Option<u64> {
    let devices = study.devices().rev();
    let worst = devices.max_by_key(|device| (device.failed_requests().next().is_some(), !device.device().is_empty()));
    worst.map(DeviceStudy::id)
}

/// The capabilities of the terminal, from the environment.
fn look() -> Look {
    let [colour_term, term] = ["COLORTERM", "TERM"].map(|name| std::env::var(name).unwrap_or_default());
    let colours = match anstream::AutoStream::choice(&io::stdout()) {
        anstream::ColorChoice::Never => Colours::None,
        _ if colour_term == "truecolor" || colour_term == "24bit" => Colours::True,
        _ if term.contains("256") || term.contains("direct") => Colours::Indexed,
        _ => Colours::Ansi,
    };
    Look { colours, unicode: supports_unicode(true) }
}

impl Session {
    /// Shows the devices of the file, each until the user goes to the next one, from `first` on.
    fn show_devices(&mut self, first: u64) -> io::Result<()> {
        let devices: Vec<_> = self.study.devices().collect();
        let start = devices.iter().position(|device| device.id() == first).unwrap_or(0);
        for device in devices.iter().cycle().skip(start) {
            if self.show(*device)? == Effect::Leave {
                break;
            }
        }
        Ok(())
    }

    /// Shows one device until the user leaves it.
    fn show(&mut self, device: DeviceStudy<'static, 'static>) -> io::Result<Effect> {
        let mut state = State::new(device, &self.name, self.study.devices().count() > 1);
        // The first frame needs nothing; all is worked out behind it.
        work(self.study, device, self.name.clone(), self.sender.clone());
        loop {
            self.screen.draw(|buffer| draw(&state, buffer, self.look))?;
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
