//! `oomscope explore`

mod messages;
mod screen;

use std::collections::HashMap;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context as _, bail};
use clap::Args;

use self::messages::{Message, Place, TABLE_ROWS, read_inputs, work};
use self::screen::Screen;
use super::args::parse_capacity;
use super::exit::{Exit, print_stderr};
use super::inputs::{self, Input};
use super::output::{Output, supports_unicode};
use crate::analysis::{AnalyzeReport, Options, RankRow, Ranks};
use crate::explore::{Colours, Effect, Input as Key, Look, State, draw, draw_ranks};
use crate::study::{DeviceStudy, Study};

/// Explore memory over time, the map of device memory, its holders and what was tried, in a terminal
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope explore snapshot.pickle            opens at the last failed request, else at the peak
  oomscope explore ranks/                     all ranks, the worst first; Enter opens one
  ssh node oomscope explore snapshot.pickle   nothing to copy; only what changed is sent

Keys:
  1 2 3 4     memory over time, map, holders, what was tried
  ← → w s     move by an entry, zoom in and out; the mouse does both
  p o [ ]     the peak, the next failure, the previous and next step
  : /         go to an entry, a time or a step; search lines and names
  Enter       the stack with its source; replay the setting or capacity
  d y ? q     the difference to another moment, the equivalent command, all keys, leave

It writes no file. Without a terminal, oomscope analyze shows the same facts.

Exit codes: 0 success; 2 wrong usage, no terminal, or an unreadable file.")]
pub(super) struct Explore {
    /// Snapshot files, directories of them, quoted patterns, or - for standard input
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<std::path::PathBuf>,

    /// Show only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Device memory: 80GiB, or a GPU such as h100; snapshots do not record it
    #[arg(long, value_name = "SIZE|GPU", value_parser = parse_capacity)]
    capacity: Option<u64>,
}

/// Everything that outlives the screen of one device.
struct Session<'o> {
    options: Options<'o>,
    screen: Screen,
    look: Look,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    /// Studies that were opened. They live to the end: threads in the background use them.
    studies: HashMap<String, &'static Study<'static>>,
    ranks: Option<Ranks>,
    commands: Vec<String>,
}

pub(super) fn run(args: &Explore) -> anyhow::Result<Exit> {
    let inputs = inputs::expand_paths(&args.snapshots)?;
    if !io::stdout().is_terminal() {
        let first = inputs.first().map_or("SNAPSHOT", |input| &*input.name);
        bail!("explore draws on a terminal, and standard output is none; use `oomscope analyze {first}`");
    }
    let options = Options { device: args.device, capacity: args.capacity, top: TABLE_ROWS, ..Options::default() };
    let mut studies = HashMap::new();
    let (mut ranks, mut exit, mut first) = (None, Exit::Success, None);
    if let [input] = inputs.as_slice() {
        let study = open(input, options)?;
        first = worst_device(study).map(|device| (input.name.clone(), device.id()));
        studies.insert(input.name.clone(), study);
    } else {
        let analyze = |snapshot: &_, path: &str, bytes| crate::analysis::analyze(snapshot, path, bytes, options);
        let (snapshots, unreadable) = inputs::read_all(&inputs, analyze);
        for file in &unreadable {
            print_stderr(&format!("{}: {}", file.path, file.message));
            exit = Exit::Unreadable;
        }
        let places =
            snapshots.iter().flat_map(|one| one.devices.iter().map(|device| (one.path.clone(), device.device)));
        first = places.take(1).next().or(first);
        ranks = AnalyzeReport::new(snapshots, unreadable, TABLE_ROWS).ranks;
    }
    let Some(mut place) = first else {
        if exit == Exit::Unreadable {
            return Ok(exit);
        }
        bail!("{}: holds no memory and no trace", args.snapshots[0].display());
    };
    let (sender, messages) = channel();
    let screen = Screen::open().context("the terminal cannot be used")?;
    read_inputs(sender.clone());
    let mut session = Session { options, screen, look: look(), messages, sender, studies, ranks, commands: Vec::new() };
    let mut is_table = session.ranks.is_some();
    loop {
        if is_table {
            match session.choose()? {
                Some(chosen) => place = chosen,
                None => break,
            }
        }
        match session.show(&place)? {
            Effect::Ranks => is_table = true,
            _ => break,
        }
    }
    let Session { screen, commands, .. } = session;
    drop(screen);
    for command in commands {
        Output::open(None)?.write(&format!("{command}\n"))?;
    }
    Ok(exit)
}

/// Reads a file for the rest of the program.
fn open(input: &Input, options: Options<'_>) -> anyhow::Result<&'static Study<'static>> {
    let snapshot = Box::leak(Box::new(inputs::read_one(&input.path)?));
    Ok(Box::leak(Box::new(Study::new(snapshot, options.scope()))))
}

/// The first device with a failed request, else the first with a trace, else the first.
fn worst_device<'s, 'a>(study: &'s Study<'a>) -> Option<DeviceStudy<'s, 'a>> {
    let key = |device: &DeviceStudy<'_, '_>| (device.failed_requests().next().is_some(), !device.device().is_empty());
    study.devices().rev().max_by_key(key)
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

impl Session<'_> {
    /// The table of ranks: the device that the user opens; `None` to leave.
    fn choose(&mut self) -> io::Result<Option<Place>> {
        let Some(ranks) = self.ranks.clone() else { return Ok(None) };
        let (mut selected, last) = (0, ranks.rows.len() - 1);
        let mut message: Option<String> = None;
        loop {
            let look = self.look;
            self.screen.draw(|buffer| draw_ranks(&ranks, selected, message.as_deref(), buffer, look))?;
            let key = match self.messages.recv() {
                Ok(Message::Key(key)) => key,
                Ok(Message::Closed) | Err(_) => return Ok(None),
                Ok(_) => continue, // of a device that was left
            };
            match key {
                Key::Up | Key::Wheel(_, _, true) => selected = selected.saturating_sub(1),
                Key::Down | Key::Wheel(_, _, false) => selected = (selected + 1).min(last),
                Key::PageUp => selected = selected.saturating_sub(10),
                Key::PageDown => selected = (selected + 10).min(last),
                Key::Home => selected = 0,
                Key::End => selected = last,
                Key::Click(_, y) if (2..).contains(&y) => selected = usize::from(y - 2).min(last),
                Key::Char('q' | '\u{3}') => return Ok(None),
                Key::Enter => {
                    let RankRow { path, device, .. } = &ranks.rows[selected];
                    if !self.studies.contains_key(path) {
                        self.screen.draw(|buffer| {
                            draw_ranks(&ranks, selected, Some("reading…"), buffer, look);
                        })?;
                        match open(&Input::named(Path::new(path)), self.options) {
                            Ok(study) => drop(self.studies.insert(path.clone(), study)),
                            Err(error) => {
                                message = Some(format!("{error:#}"));
                                continue;
                            }
                        }
                    }
                    return Ok(Some((path.clone(), *device)));
                }
                _ => {}
            }
        }
    }

    /// Shows one device until the user leaves it.
    fn show(&mut self, place: &Place) -> anyhow::Result<Effect> {
        let (path, id) = place;
        if !self.studies.contains_key(path) {
            let study = open(&Input::named(Path::new(path)), self.options)?;
            self.studies.insert(path.clone(), study);
        }
        let study = self.studies[path];
        let Some(device) = study.device(*id) else { return Ok(Effect::Leave) }; // the table has devices that exist
        let has_ranks = self.ranks.is_some() || study.devices().count() > 1;
        let mut state = State::new(device, path, has_ranks);
        // The first frame needs the totals alone; all else is worked out behind it.
        let replays = work(device, study, place, self.sender.clone());
        let effect = loop {
            let look = self.look;
            self.screen.draw(|buffer| draw(&state, buffer, look))?;
            let Some(effect) = self.turn(&mut state, place, &replays) else { break Effect::Leave };
            if matches!(effect, Effect::Leave | Effect::Ranks) {
                break effect;
            }
        };
        self.commands.extend_from_slice(state.commands());
        Ok(effect)
    }

    /// Takes everything that waits, so that a slow terminal draws once for many keys. `None` if the terminal is closed.
    fn turn(
        &mut self,
        state: &mut State<'_, '_>,
        place: &Place,
        replays: &Sender<crate::whatif::Conditions>,
    ) -> Option<Effect> {
        let mut next = self.messages.recv().ok();
        while let Some(message) = next {
            let effect = match message {
                Message::Closed => return None,
                Message::Key(key) => state.handle(key, self.screen.area()),
                Message::Recording(of, loaded) if of == *place => {
                    state.set_recording(*loaded);
                    Effect::Draw
                }
                Message::Report(of, report) => {
                    if self.ranks.is_none() {
                        self.ranks = AnalyzeReport::new(vec![(*report).clone()], Vec::new(), TABLE_ROWS).ranks;
                    }
                    if of == *place {
                        state.set_report(*report);
                    }
                    Effect::Draw
                }
                Message::Run(of, run) if of == *place => {
                    state.set_run(*run);
                    Effect::Draw
                }
                // The others are of a device that was left.
                Message::Resized | Message::Recording(..) | Message::Run(..) => Effect::Draw,
            };
            match effect {
                Effect::Draw => {}
                Effect::Replay(conditions) => {
                    // The thread ends with the program.
                    let _ = replays.send(conditions);
                }
                Effect::Ranks if self.ranks.is_none() => {} // not analyzed yet
                Effect::Ranks | Effect::Leave => return Some(effect),
            }
            next = self.messages.try_recv().ok();
        }
        Some(Effect::Draw)
    }
}
