//! What the screen shows, and how a key changes it. Nothing here draws, waits or reads a file.

use std::ops::Range;

use super::keys::{Input, KEYS};
use super::layout::{Layout, View};
use super::map_cells::{MapCells, blocks_at};
use super::recording::{Grouping, Moment, Recording};
use super::rows::{self, HolderRow, TriedEntry};
use super::target::{Target, moment_at};
use crate::allocator::device::parse_replay_capacity;
use crate::analysis::{DeviceReport, SnapshotReport};
use crate::base::ids::{StackId, to_u32};
use crate::output::command_line;
use crate::study::DeviceStudy;
use crate::whatif::{Conditions, TriedRun};

use ratatui_core::layout::Rect;

/// The fewest moments that fill a picture.
const MIN_ZOOM: u32 = 8;

/// The consequence of a key for the program around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Draw.
    Draw,
    /// Replay in the background, then call [`State::set_run`].
    Replay(Conditions),
    /// Show the table of ranks.
    Ranks,
    /// Leave.
    Leave,
}

/// A line that the user types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prompt {
    /// `/`, `:` or `c`.
    pub(super) key: char,
    pub(super) text: String,
}

/// A box over the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Popup {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    pub(super) scroll: usize,
}

/// A replay that was laid over the recorded run.
#[derive(Debug)]
pub(super) struct ShownRun {
    pub(super) name: String,
    pub(super) run: TriedRun,
}

/// The allocations of a device, as they are read in the background.
#[derive(Debug)]
pub struct Loaded(Recording);

impl Loaded {
    /// Reads the lifetimes of all allocations of `device`.
    pub fn from_device(device: DeviceStudy<'_, '_>) -> Self {
        Self(Recording::from_device(device))
    }
}

/// One device on the screen.
#[derive(Debug)]
pub struct State<'s, 'a> {
    pub(super) device: DeviceStudy<'s, 'a>,
    pub(super) path: String,
    pub(super) recording: Option<Recording>,
    pub(super) report: Option<Box<SnapshotReport>>,
    pub(super) view: View,
    pub(super) moment: Moment,
    /// The moments of the picture.
    pub(super) zoom: Range<Moment>,
    pub(super) grouping: usize,
    /// The matches of a search, in place of the chosen grouping.
    pub(super) found: Option<Grouping>,
    /// The selected row of each view; in the map, a live allocation.
    pub(super) selected: [Option<usize>; 4],
    pub(super) marked: Option<Moment>,
    pub(super) prompt: Option<Prompt>,
    pub(super) popup: Option<Popup>,
    pub(super) shown_run: Option<ShownRun>,
    /// The replay that runs in the background.
    pub(super) running: Option<String>,
    pub(super) message: Option<String>,
    pub(super) has_ranks: bool,
    dragged_from: Option<u16>,
    commands: Vec<String>,
}

impl<'s, 'a> State<'s, 'a> {
    /// Opens `device` of the file at `path`, at its last failed request, else at the peak. `has_ranks`: there are others.
    pub fn new(device: DeviceStudy<'s, 'a>, path: &str, has_ranks: bool) -> Self {
        let end = to_u32(device.device().len()) + 1;
        let last_failure = device.failed_requests().next_back();
        let peak = device.history().and_then(|history| history.peak.allocated_event);
        let entry = last_failure.map(|entry| entry as u64).or(peak);
        let moment = entry.map_or(0, |entry| to_u32(usize::try_from(entry).unwrap_or(0)) + 1);
        Self {
            device,
            path: path.to_owned(),
            recording: None,
            report: None,
            view: View::Memory,
            moment: moment.min(end - 1),
            zoom: 0..end,
            grouping: 0,
            found: None,
            selected: [None; 4],
            marked: None,
            prompt: None,
            popup: None,
            shown_run: None,
            running: None,
            message: None,
            has_ranks,
            dragged_from: None,
            commands: Vec::new(),
        }
    }

    /// The allocations were read.
    pub fn set_recording(&mut self, loaded: Loaded) {
        self.recording = Some(loaded.0);
    }

    /// The analysis is done.
    pub fn set_report(&mut self, report: SnapshotReport) {
        self.report = Some(Box::new(report));
    }

    /// The replay is done.
    pub fn set_run(&mut self, outcome: Result<TriedRun, String>) {
        let name = self.running.take().unwrap_or_default();
        match outcome {
            Ok(run) => self.shown_run = Some(ShownRun { name, run }),
            Err(message) => self.message = Some(message),
        }
    }

    /// Commands that show the same as the moments where the user pressed `y`.
    pub fn commands(&self) -> &[String] {
        &self.commands
    }

    pub(super) fn last(&self) -> Moment {
        to_u32(self.device.device().len())
    }

    /// The partition that the views show.
    pub(super) fn grouping(&self) -> Option<&Grouping> {
        let chosen = self.recording.as_ref()?.groupings.get(self.grouping);
        self.found.as_ref().or(chosen)
    }

    /// The holders at the moment.
    pub(super) fn holders(&self) -> Vec<HolderRow> {
        let Some(recording) = &self.recording else { return Vec::new() };
        let grouping = &recording.groupings[self.grouping];
        rows::holders(recording, grouping, self.found.as_ref(), self.moment, self.marked)
    }

    /// The analysis of the device, when it is done.
    pub(super) fn device_report(&self) -> Option<&DeviceReport> {
        self.report.as_ref()?.devices.iter().find(|one| one.device == self.device.id())
    }

    /// The rows of what was tried.
    pub(super) fn tried(&self) -> Vec<TriedEntry> {
        rows::tried(self.device_report())
    }

    /// Changes the state as `input` demands; `area` is the screen.
    pub fn handle(&mut self, input: Input, area: Rect) -> Effect {
        self.message = None;
        if self.prompt.is_some() {
            return self.type_in(input);
        }
        if self.popup.is_some() {
            self.scroll_popup(input);
            return Effect::Draw;
        }
        let layout = Layout::new(area, self.view);
        match input {
            Input::Char(key) => return self.press(key),
            Input::Left(far) => self.go(i64::from(self.moment) - if far { 10 } else { 1 }),
            Input::Right(far) => self.go(i64::from(self.moment) + if far { 10 } else { 1 }),
            Input::PageUp => self.go(i64::from(self.moment) - (self.zoom.len() as i64 / 10).max(1)),
            Input::PageDown => self.go(i64::from(self.moment) + (self.zoom.len() as i64 / 10).max(1)),
            Input::Home => self.go(0),
            Input::End => self.go(self.last().into()),
            Input::Up => self.select(-1),
            Input::Down => self.select(1),
            Input::Tab => self.view = self.view.next(),
            Input::Enter => return self.open(),
            Input::Escape => self.clear(),
            Input::Backspace if self.has_ranks => return Effect::Ranks,
            Input::Backspace => {}
            Input::Click(x, y) => self.click(x, y, &layout),
            Input::Drag(x, _) => self.drag(x, &layout),
            Input::Wheel(x, _, is_in) if self.view == View::Memory => {
                let at = layout.moment_at(x, &self.zoom);
                self.zoom_by(at, if is_in { 2 } else { -2 });
            }
            Input::Wheel(_, _, is_up) => self.select(if is_up { -1 } else { 1 }),
        }
        Effect::Draw
    }

    fn press(&mut self, key: char) -> Effect {
        match key {
            'q' | '\u{3}' => return Effect::Leave,
            'r' if self.has_ranks => return Effect::Ranks,
            'w' | '+' | '=' => self.zoom_by(self.moment, 2),
            's' | '-' => self.zoom_by(self.moment, -2),
            'a' => self.pan(-(self.zoom.len() as i64) / 5),
            'f' => self.pan(self.zoom.len() as i64 / 5),
            '0' => self.zoom = 0..self.last() + 1,
            'p' => self.go_to(Target::Peak),
            'o' => self.go_to(Target::Failure),
            '[' => self.go_to_step(false),
            ']' => self.go_to_step(true),
            'd' | 'm' => self.mark(),
            'g' => self.regroup(),
            '/' | ':' | 'c' => self.prompt = Some(Prompt { key, text: String::new() }),
            '?' => self.popup = Some(keys_popup()),
            'y' => self.note_command(),
            _ => {
                if let Some(view) = key.to_digit(10).and_then(|digit| View::ALL.get((digit as usize).wrapping_sub(1))) {
                    self.view = *view;
                }
            }
        }
        Effect::Draw
    }

    fn go(&mut self, moment: i64) {
        self.moment = Moment::try_from(moment.max(0)).unwrap_or(Moment::MAX).min(self.last());
        // The picture follows.
        let width = self.zoom.len() as i64;
        if self.moment < self.zoom.start {
            self.pan(i64::from(self.moment) - i64::from(self.zoom.start) - width / 4);
        } else if self.moment >= self.zoom.end {
            self.pan(i64::from(self.moment) - i64::from(self.zoom.end) + 1 + width / 4);
        }
        self.selected[View::Map as usize] = None;
    }

    fn pan(&mut self, by: i64) {
        let width = to_u32(self.zoom.len());
        let start = (i64::from(self.zoom.start) + by).clamp(0, i64::from(self.last() + 1 - width));
        let start = Moment::try_from(start).unwrap_or(0);
        self.zoom = start..start + width;
    }

    /// Zooms in by `factor`, or out if it is negative, with `at` in its place.
    fn zoom_by(&mut self, at: Moment, factor: i32) {
        let (old, all) = (self.zoom.len() as u64, u64::from(self.last()) + 1);
        let times = u64::from(factor.unsigned_abs());
        let width = if factor > 0 { (old / times).max(u64::from(MIN_ZOOM)) } else { old * times }.min(all);
        let before = u64::from(at.saturating_sub(self.zoom.start)) * width / old.max(1);
        let start = u64::from(at).saturating_sub(before).min(all - width);
        let [start, end] = [start, start + width].map(|moment| Moment::try_from(moment).unwrap_or(Moment::MAX));
        self.zoom = start..end;
    }

    fn go_to(&mut self, target: Target) {
        let found = match target {
            Target::Start => Ok(0),
            Target::End => Ok(self.last() as usize),
            Target::Peak => {
                let entry = self.device.history().and_then(|history| history.peak.allocated_event);
                Ok(entry.map_or(0, |entry| usize::try_from(entry).unwrap_or(0) + 1))
            }
            Target::Failure => {
                let failures = || self.device.failed_requests().map(|entry| entry + 1);
                let next = failures().find(|moment| *moment > self.moment as usize);
                next.or_else(|| failures().next()).ok_or("no request failed")
            }
            Target::Entry(entry) if entry < u64::from(self.last()) => {
                Ok(usize::try_from(entry).unwrap_or(usize::MAX) + 1)
            }
            Target::Entry(_) => Err("the trace has no such entry"),
            Target::Step(step) => {
                let entries = self.device.phases().step_entries(step);
                entries.map(|entries| entries.end).ok_or("the trace has no such step")
            }
            Target::Time(us) => moment_at(self.device, us).ok_or("the trace has no times"),
        };
        match found {
            Ok(moment) => self.go(i64::try_from(moment).unwrap_or(i64::MAX)),
            Err(message) => self.message = Some(message.to_owned()),
        }
    }

    fn go_to_step(&mut self, is_next: bool) {
        let ends = self.device.phases().step_ends();
        let moment = self.moment;
        let found = if is_next {
            ends.get(ends.partition_point(|end| *end <= moment))
        } else {
            ends[..ends.partition_point(|end| *end < moment)].last()
        };
        match found {
            Some(end) => self.go((*end).into()),
            None => self.message = Some(format!("no {} step", if is_next { "later" } else { "earlier" })),
        }
    }

    /// Marks the moment; at another one, shows what changed between the two.
    fn mark(&mut self) {
        match self.marked {
            Some(marked) if marked != self.moment => self.view = View::Holders,
            _ => self.marked = Some(self.moment),
        }
    }

    fn regroup(&mut self) {
        self.found = None;
        let count = self.recording.as_ref().map_or(1, |recording| recording.groupings.len());
        self.grouping = (self.grouping + 1) % count;
        self.selected[View::Holders as usize] = None;
    }

    fn clear(&mut self) {
        if self.found.take().is_none() && self.marked.take().is_none() && self.shown_run.take().is_none() {
            self.selected = [None; 4];
        }
    }

    /// Moves the selection.
    fn select(&mut self, by: isize) {
        let view = self.view as usize;
        let now = self.selected[view];
        let step = |index: usize, count: usize| index.saturating_add_signed(by).min(count.saturating_sub(1));
        self.selected[view] = match self.view {
            View::Memory => None,
            View::Map => {
                let blocks = self.recording.as_ref().map(|recording| blocks_at(recording, self.moment));
                let blocks = blocks.unwrap_or_default();
                let index = now.and_then(|row| blocks.iter().position(|other| *other == row));
                blocks.get(index.map_or(0, |index| step(index, blocks.len()))).copied()
            }
            View::Holders => Some(now.map_or(0, |index| step(index, self.holders().len()))),
            View::Tried => Some(now.map_or(0, |index| step(index, self.tried().len()))),
        };
    }

    fn open(&mut self) -> Effect {
        let selected = self.selected[self.view as usize];
        match self.view {
            View::Memory => {
                let entry = self.moment.checked_sub(1);
                if let Some(entry) = entry {
                    let stack = self.device.device().entry(entry as usize).extended_stack;
                    self.popup = Some(self.stack_popup(format!("entry {entry}"), stack));
                }
            }
            View::Map => {
                let one = selected.zip(self.recording.as_ref()).map(|(row, recording)| recording.allocations[row]);
                self.popup = one.map(|one| self.stack_popup(rows::describe_block(&one), one.made_by));
            }
            View::Holders => {
                let row = self.holders().into_iter().nth(selected.unwrap_or(0));
                self.popup = row.map(|row| self.stack_popup(row.name, row.stack));
            }
            View::Tried => {
                if let Some(entry) = self.tried().into_iter().nth(selected.unwrap_or(0)) {
                    return match entry.conditions {
                        Some(conditions) => self.replay(entry.name, conditions),
                        None => self.press('c'),
                    };
                }
            }
        }
        Effect::Draw
    }

    fn replay(&mut self, name: String, conditions: Conditions) -> Effect {
        if self.running.is_some() {
            self.message = Some("a replay is running".to_owned());
            return Effect::Draw;
        }
        if self.device.device().is_empty() {
            self.message = Some("no history was recorded, so there is nothing to replay".to_owned());
            return Effect::Draw;
        }
        self.running = Some(name);
        Effect::Replay(conditions)
    }

    /// The frames of `stack`, innermost first, with the text of their lines where it was recorded.
    fn stack_popup(&self, title: String, stack: StackId) -> Popup {
        let frames = self.device.stacks().frame_list(stack);
        let source = &self.device.snapshot().source;
        let mut lines = Vec::new();
        for frame in frames.iter() {
            lines.push(format!("{} {}", frame.file_line(), frame.name));
            lines.extend(source.get(&frame.file, frame.line).map(|text| format!("    {}", text.trim_start())));
        }
        match frames.left_out {
            0 if lines.is_empty() => lines.push("no stack was recorded".to_owned()),
            0 => {}
            others => lines.push(format!("and {others} other frames")),
        }
        Popup { title, lines, scroll: 0 }
    }

    fn scroll_popup(&mut self, input: Input) {
        let Some(popup) = &mut self.popup else { return };
        let last = popup.lines.len().saturating_sub(1);
        match input {
            Input::Up | Input::Wheel(_, _, true) => popup.scroll = popup.scroll.saturating_sub(1),
            Input::Down | Input::Wheel(_, _, false) => popup.scroll = (popup.scroll + 1).min(last),
            Input::PageUp => popup.scroll = popup.scroll.saturating_sub(10),
            Input::PageDown => popup.scroll = (popup.scroll + 10).min(last),
            _ => self.popup = None,
        }
    }

    fn type_in(&mut self, input: Input) -> Effect {
        let Some(prompt) = &mut self.prompt else { return Effect::Draw };
        match input {
            Input::Char('\u{3}') | Input::Escape => self.prompt = None,
            Input::Char(character) if !character.is_control() => prompt.text.push(character),
            Input::Backspace if prompt.text.pop().is_none() => self.prompt = None,
            Input::Enter => {
                let Prompt { key, text } = prompt.clone();
                self.prompt = None;
                match key {
                    '/' => self.search(&text),
                    ':' => match Target::parse(&text) {
                        Ok(target) => self.go_to(target),
                        Err(message) => self.message = Some(message),
                    },
                    _ => return self.replay_typed(&text),
                }
            }
            _ => {}
        }
        Effect::Draw
    }

    fn replay_typed(&mut self, text: &str) -> Effect {
        let text = text.trim();
        if text.is_empty() {
            return Effect::Draw;
        }
        self.view = View::Tried;
        let mut conditions = Conditions::default();
        match parse_replay_capacity(text) {
            Ok(capacity) => conditions.capacity = Some(capacity),
            // The replay refuses what are no settings either.
            Err(_) => text.clone_into(&mut conditions.options),
        }
        self.replay(text.to_owned(), conditions)
    }

    /// Shows the allocations whose line or name contains `text`.
    fn search(&mut self, text: &str) {
        let Some(recording) = self.recording.as_ref().filter(|_| !text.is_empty()) else {
            self.found = None;
            return;
        };
        let text = text.to_lowercase();
        let is_match = |name: &String| name.to_lowercase().contains(&text);
        let lines: Vec<bool> = recording.lines.iter().map(is_match).collect();
        let names = recording.groupings.iter().find(|one| one.word == "name");
        let named: Option<Vec<bool>> =
            names.map(|names| names.groups.iter().map(|group| is_match(&group.name)).collect());
        let of = recording.line_of.iter().enumerate().map(|(row, line)| {
            let is_named = names.zip(named.as_ref()).is_some_and(|(names, named)| named[names.of[row] as usize]);
            u8::from(!(lines[*line as usize] || is_named))
        });
        let of: Vec<u8> = of.collect();
        let matches = of.iter().filter(|group| **group == 0).count();
        if matches == 0 {
            self.message = Some(format!("no line and no name contains {text}"));
            return;
        }
        let groups = rows::search_groups(&text);
        self.found = Some(recording.group("search", groups, of));
        self.selected[View::Holders as usize] = None;
    }

    fn click(&mut self, x: u16, y: u16, layout: &Layout) {
        self.dragged_from = Some(x);
        if let Some(view) = layout.tab_at(x, y) {
            self.view = view;
            return;
        }
        if !layout.body.contains((x, y).into()) {
            return;
        }
        match self.view {
            View::Memory => self.go(layout.moment_at(x, &self.zoom).into()),
            View::Map => {
                if let Some(recording) = &self.recording {
                    let map = MapCells::new(recording, self.moment, layout.map_cells());
                    let found = layout.map_cell_at(x, y).and_then(|cell| map.block_at(cell));
                    self.selected[View::Map as usize] = found;
                }
            }
            View::Holders | View::Tried => {
                let first = layout.first_row(self.selected[self.view as usize].unwrap_or(0));
                self.selected[self.view as usize] = layout.row_at(y).map(|row| first + row);
            }
        }
    }

    fn drag(&mut self, x: u16, layout: &Layout) {
        if let Some(from) = self.dragged_from.filter(|_| self.view == View::Memory) {
            let per_column = self.zoom.len() as i64 / i64::from(layout.chart.width.max(1));
            self.pan((i64::from(from) - i64::from(x)) * per_column.max(1));
        }
        self.dragged_from = Some(x);
    }

    /// Notes the command that shows this moment, to be printed on leaving.
    fn note_command(&mut self) {
        let device = self.device.id();
        let at = match self.moment.checked_sub(1) {
            Some(entry) => format!(" --at {entry}"),
            None => String::new(),
        };
        let run = self.shown_run.as_ref().filter(|_| self.view == View::Tried);
        let arguments = match (self.view, run) {
            (View::Tried, Some(shown)) => match parse_replay_capacity(&shown.name) {
                Ok(_) => format!("replay --device {device} --capacity {}", shown.name),
                Err(_) if shown.run.change.is_some() => format!("whatif --device {device} --program"),
                Err(_) => format!("replay --device {device} --set {}", shown.name),
            },
            (View::Tried, None) => format!("whatif --device {device}"),
            (View::Memory, _) if self.zoom.len() <= self.last() as usize => {
                let (from, to) = (self.zoom.start.saturating_sub(1), self.zoom.end - 1);
                format!("timeline --device {device} --from {from} --to {to}")
            }
            _ => format!("analyze --device {device}{at}"),
        };
        let command = command_line(&arguments, &self.path);
        self.message = Some(match &command {
            Some(command) => format!("on leaving: {command}"),
            None => "standard input cannot be read again".to_owned(),
        });
        self.commands.extend(command);
    }
}

fn keys_popup() -> Popup {
    let line = |(key, does): &(&str, &str)| format!("{key:<12}{does}");
    Popup { title: "keys".to_owned(), lines: KEYS.iter().map(line).collect(), scroll: 0 }
}
