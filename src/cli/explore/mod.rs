//! `oomscope explore`

mod messages;
mod screen;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};

use anyhow::{Context as _, bail};
use clap::Args;

use self::messages::{Message, Place, TABLE_ROWS, read_inputs, work};
use self::screen::Screen;
use super::args::{gpu_or, parse_capacity};
use super::exit::{Exit, print_stderr};
use super::inputs;
use super::output::supports_unicode;
use super::source::{SourceArgs, SourceDirectory};
use crate::analysis::{AnalyzeReport, Options, RankRow, Ranks};
use crate::explore::{Colours, Effect, Input as Key, Look, State, draw, draw_ranks, sort_ranks};
use crate::snapshot::Snapshot;
use crate::study::{DeviceStudy, Study};

/// Explore it in the terminal: over time, by address, by holder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope explore snapshot.pickle            opens at the last failed request, else at the peak
  oomscope explore ranks/                     all ranks, the worst first; Enter opens one
  ssh node oomscope explore snapshot.pickle   nothing to copy; only what changed is sent

Keys:
  1 2 3       memory over time, map, holders
  ← → w s     move by an entry, zoom in and out; the mouse does both
  p o [ ]     the peak, the next failure, the previous and next step
  : /         go to an entry or a step; search lines and names
  Enter       the stack with its source
  d ? q       the difference to another moment, all keys, leave

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
    #[arg(long, visible_alias = "gpu", value_name = "SIZE|GPU", value_parser = gpu_or(parse_capacity), hide_possible_values = true)]
    capacity: Option<u64>,

    #[command(flatten)]
    source: SourceArgs,
}

/// Everything that outlives the screen of one file.
struct Session {
    options: Options<'static>,
    source: SourceDirectory,
    screen: Screen,
    look: Look,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    ranks: Option<Ranks>,
    /// The selected row of the table of ranks.
    selected: usize,
}

pub(super) fn run(args: &Explore) -> anyhow::Result<Exit> {
    let inputs = inputs::expand_paths(&args.snapshots)?;
    if !io::stdout().is_terminal() {
        let first = inputs.first().map_or("SNAPSHOT", |input| &*input.name);
        bail!("explore draws on a terminal, and standard output is none; use `oomscope analyze {first}`");
    }
    let source = args.source.open_at(true)?;
    let options = Options { device: args.device, capacity: args.capacity, top: TABLE_ROWS, ..Options::default() };
    let (mut ranks, mut exit, mut snapshot) = (None, Exit::Success, None);
    let place = if let [input] = inputs.as_slice() {
        let read = snapshot.insert(inputs::read_one(&input.path)?);
        worst_device(&Study::new(read, options.scope())).map(|device| (input.name.clone(), device))
    } else {
        let analyze = |snapshot: &mut _, path: &str, bytes| crate::analysis::analyze(snapshot, path, bytes, options);
        let (snapshots, unreadable) = inputs::read_all(&inputs, analyze);
        for file in &unreadable {
            print_stderr(&format!("{}: {}", file.path, file.message));
            exit = Exit::Unreadable;
        }
        let mut places = snapshots.iter().flat_map(|one| one.devices.iter().map(|of| (one.path.clone(), of.device)));
        let first = places.next();
        ranks = AnalyzeReport::new(snapshots, unreadable, TABLE_ROWS).ranks;
        first
    };
    let Some(place) = place else {
        if exit == Exit::Unreadable {
            return Ok(exit);
        }
        bail!("{}: holds no memory and no trace", args.snapshots[0].display());
    };
    let (sender, messages) = channel();
    let mut session = Session {
        options,
        source,
        screen: Screen::open().context("the terminal cannot be used")?,
        look: look(),
        messages,
        sender,
        ranks,
        selected: 0,
    };
    read_inputs(session.sender.clone());
    let mut next = if let Some(snapshot) = snapshot {
        Some((place, snapshot))
    } else {
        let chosen = if session.ranks.is_some() { session.choose(None)? } else { Some(place) };
        session.read(chosen)?
    };
    while let Some((place, snapshot)) = next {
        let chosen;
        (session, chosen) = show_file(session, place, snapshot)?;
        next = session.read(chosen)?;
    }
    Ok(exit)
}

/// Shows devices of a file until the user leaves it; then the place that the user chose instead. The thread that does it
/// owns the file: it ends, and frees the memory, as soon as the work in the background is done.
fn show_file(
    mut session: Session,
    (path, device): Place,
    mut snapshot: Snapshot,
) -> anyhow::Result<(Session, Option<Place>)> {
    let (done, wait) = channel();
    thread::spawn(move || {
        session.source.add_to(&mut snapshot);
        let study = Study::new(&snapshot, session.options.scope());
        thread::scope(|scope| {
            let chosen = session.show_devices(scope, &study, &path, device);
            // The program waits for this alone.
            let _ = done.send((session, chosen));
        });
    });
    let (session, chosen) = wait.recv().context("the screen could not be drawn")?;
    Ok((session, chosen?))
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
    /// The table of ranks: the device that the user opens; `None` to leave.
    fn choose(&mut self, mut message: Option<String>) -> io::Result<Option<Place>> {
        let Some(mut ranks) = self.ranks.clone() else { return Ok(None) };
        let (last, mut sorts) = (ranks.rows.len() - 1, 0);
        loop {
            let (look, selected) = (self.look, self.selected);
            self.screen.draw(|buffer| draw_ranks(&ranks, selected, message.as_deref(), buffer, look))?;
            let key = match self.messages.recv() {
                Ok(Message::Key(key)) => key,
                Ok(Message::Closed) | Err(_) => return Ok(None),
                Ok(_) => continue, // of a device that was left
            };
            message = None;
            match key {
                Key::Up | Key::Char('k') | Key::Wheel(_, _, true) => self.selected = selected.saturating_sub(1),
                Key::Down | Key::Char('j') | Key::Wheel(_, _, false) => self.selected = (selected + 1).min(last),
                Key::PageUp => self.selected = selected.saturating_sub(10),
                Key::PageDown => self.selected = (selected + 10).min(last),
                Key::Char('t') => {
                    sorts += 1;
                    sort_ranks(&mut ranks.rows, sorts);
                }
                Key::Home => self.selected = 0,
                Key::End => self.selected = last,
                Key::Click(_, y) if (2..).contains(&y) => self.selected = usize::from(y - 2).min(last),
                Key::Char('q' | '\u{3}') => return Ok(None),
                Key::Enter => {
                    self.screen.draw(|buffer| draw_ranks(&ranks, selected, Some("reading…"), buffer, look))?;
                    let RankRow { path, device, .. } = &ranks.rows[selected];
                    return Ok(Some((path.clone(), *device)));
                }
                _ => {}
            }
        }
    }

    /// Reads the file of `place`; where that fails, the user chooses another.
    fn read(&mut self, mut place: Option<Place>) -> io::Result<Option<(Place, Snapshot)>> {
        while let Some(chosen) = place {
            match inputs::read_with(Path::new(&chosen.0), &|_| ()) {
                Ok(snapshot) => return Ok(Some((chosen, snapshot))),
                Err(error) => place = self.choose(Some(format!("{error:#}")))?,
            }
        }
        Ok(None)
    }

    /// Shows devices of the file of `study`, which is at `path`, until the user leaves it.
    fn show_devices<'s, 'e>(
        &mut self,
        scope: &'s Scope<'s, 'e>,
        study: &'e Study<'_>,
        path: &str,
        mut device: u64,
    ) -> io::Result<Option<Place>> {
        while let Some(shown) = study.device(device)
            && self.show(scope, study, shown, path)? == Effect::Ranks
        {
            match self.choose(None)? {
                Some((chosen, other)) if chosen == path => device = other,
                chosen => return Ok(chosen),
            }
        }
        Ok(None)
    }

    /// Shows one device until the user leaves it.
    fn show<'s, 'e, 'a>(
        &mut self,
        scope: &'s Scope<'s, 'e>,
        study: &'e Study<'a>,
        device: DeviceStudy<'e, 'a>,
        path: &str,
    ) -> io::Result<Effect> {
        let place = (path.to_owned(), device.id());
        let has_ranks = self.ranks.is_some() || study.devices().count() > 1;
        let mut state = State::new(device, path, has_ranks);
        // The first frame needs the totals alone; all else is worked out behind it.
        work(scope, study, device, &place, self.sender.clone());
        loop {
            let look = self.look;
            self.screen.draw(|buffer| draw(&state, buffer, look))?;
            match self.turn(&mut state, &place) {
                Effect::Draw => {}
                effect => return Ok(effect),
            }
        }
    }

    /// Takes everything that waits, so that a slow terminal draws once for many keys.
    fn turn(&mut self, state: &mut State<'_, '_>, place: &Place) -> Effect {
        let mut next = self.messages.recv().ok();
        while let Some(message) = next {
            match message {
                Message::Closed => return Effect::Leave,
                Message::Key(key) => match state.handle(key, self.screen.area()) {
                    Effect::Draw => {}
                    Effect::Ranks if self.ranks.is_none() => {} // not analyzed yet
                    effect => return effect,
                },
                Message::Recording(of, loaded) if of == *place => state.set_recording(*loaded),
                Message::Report(of, done) => {
                    let (report, analyzed) = *done;
                    if of == *place {
                        state.set_analysis(analyzed);
                    }
                    if self.ranks.is_none() {
                        self.ranks = AnalyzeReport::new(vec![report], Vec::new(), TABLE_ROWS).ranks;
                    }
                }
                // The others are of a device that was left.
                Message::Resized | Message::Recording(..) => {}
            }
            next = self.messages.try_recv().ok();
        }
        Effect::Draw
    }
}
