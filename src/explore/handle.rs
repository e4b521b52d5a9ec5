//! The keys, as in the HTML page, and how each changes the state. Nothing here draws, waits or reads a file.

use super::draw_map::blocks_at;
use super::layout::View;
use super::rows;
use super::state::{Effect, Popup, State};
use crate::base::ids::StackId;
use crate::base::units::count;
use crate::stacks::frames::FrameReport;
use crate::study::PositionSelector;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A character, with Shift or not.
    Char(char),
    /// An arrow to the left; `true` with Shift.
    Left(bool),
    /// An arrow to the right; `true` with Shift.
    Right(bool),
    /// An arrow up.
    Up,
    /// An arrow down.
    Down,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Tab.
    Tab,
}

/// Keys and what they do, for `?`.
const KEYS: &str = include_str!("keys.txt");

/// The most useful keys, for the foot.
pub(super) const FOOT: [&str; 8] =
    ["? keys", "q leave", "Tab view", "w s zoom", "o failure", "p peak", ": go to", "d mark"];

impl State<'_, '_> {
    /// Changes the state as `input` demands.
    pub fn handle(&mut self, input: Input) -> Effect {
        self.message = None;
        self.is_touched = true;
        if self.prompt.is_some() {
            self.type_in(input);
            return Effect::Draw;
        }
        if self.popup.is_some() {
            self.scroll_popup(input);
            return Effect::Draw;
        }
        match input {
            Input::Char(key) => return self.press(key),
            Input::Left(far) => self.go(i64::from(self.moment) - if far { 10 } else { 1 }),
            Input::Right(far) => self.go(i64::from(self.moment) + if far { 10 } else { 1 }),
            Input::PageUp => self.go(i64::from(self.moment) - (self.width() / 10).max(1)),
            Input::PageDown => self.go(i64::from(self.moment) + (self.width() / 10).max(1)),
            Input::Home => self.go(0),
            Input::End => self.go(self.last().into()),
            Input::Up => self.select(-1),
            Input::Down => self.select(1),
            Input::Tab => self.view = self.view.next(),
            Input::Enter => self.open(),
            Input::Escape => self.clear(),
            Input::Backspace => {}
        }
        Effect::Draw
    }

    fn press(&mut self, key: char) -> Effect {
        match key {
            'q' | '\u{3}' => return Effect::Leave,
            'r' if self.has_others => return Effect::NextDevice,
            'w' | '+' | '=' => self.zoom_to(self.zoom.len() / 2),
            's' | '-' => self.zoom_to(self.zoom.len() * 2),
            'a' => self.pan(-self.width() / 5),
            'f' => self.pan(self.width() / 5),
            '0' => self.zoom = 0..self.last() + 1,
            'p' => self.go_to(PositionSelector::Peak),
            'o' => self.go_to_next_failure(),
            '[' => self.go_to_step(false),
            ']' => self.go_to_step(true),
            'd' | 'm' => self.mark(),
            'g' => self.regroup(),
            'j' => self.select(1),
            'k' => self.select(-1),
            ':' => self.prompt = Some(String::new()),
            '?' => self.popup = Some(keys_popup()),
            _ => {
                if let Some(view) = key.to_digit(10).and_then(|digit| View::ALL.get((digit as usize).wrapping_sub(1))) {
                    self.view = *view;
                }
            }
        }
        Effect::Draw
    }

    fn regroup(&mut self) {
        let count = self.recording.as_ref().map_or(1, |recording| recording.groupings.len());
        let grouping = &mut self.groupings[usize::from(self.view == View::Holders)];
        *grouping = (*grouping + 1) % count;
        self.selected[View::Holders as usize] = None;
    }

    fn clear(&mut self) {
        if self.marked.take().is_none() {
            self.selected = [None; 3];
        }
    }

    /// Moves the selection.
    fn select(&mut self, by: isize) {
        let view = self.view as usize;
        let now = self.selected[view];
        self.selected[view] = match self.view {
            View::Memory => None,
            View::Map => {
                let blocks = self.recording.as_ref().map(|recording| blocks_at(recording, self.moment));
                let blocks = blocks.unwrap_or_default();
                let index = now.and_then(|row| blocks.iter().position(|other| *other == row));
                blocks.get(index.map_or(0, |index| moved_by(by, index, blocks.len()))).copied()
            }
            View::Holders => Some(now.map_or(0, |index| moved_by(by, index, self.holders().len()))),
        };
    }

    fn open(&mut self) {
        let selected = self.selected[self.view as usize];
        self.popup = match self.view {
            View::Memory => self.moment.checked_sub(1).map(|entry| {
                let stack = self.device.device().entry(entry as usize).extended_stack;
                self.stack_popup(format!("entry {}", count(entry.into())), stack)
            }),
            View::Map => selected.zip(self.recording.as_ref()).map(|(row, recording)| {
                self.stack_popup(rows::describe_block(recording, row), recording.allocations[row].made_by)
            }),
            View::Holders => {
                let row = self.holders().into_iter().nth(selected.unwrap_or(0));
                row.map(|row| self.stack_popup(row.name, row.stack))
            }
        };
    }

    /// The frames of `stack` with the text of their lines where it is known.
    fn stack_popup(&self, title: String, stack: StackId) -> Popup {
        let stacks = self.device.stacks();
        let frames = stacks.frame_list(stack);
        // The line of the program comes before the code that it called.
        let line = stacks.code_location(stacks.line_id(stack)).frame;
        let own = frames.iter().position(|frame| Some(frame) == line.as_ref()).unwrap_or(0);
        let mut lines: Vec<String> = frames.iter().skip(own).flat_map(|frame| self.frame_lines(frame)).collect();
        if own > 0 {
            lines.push("and in the code that it called, innermost first:".to_owned());
            lines.extend(frames.iter().take(own).flat_map(|frame| self.frame_lines(frame)));
        }
        match frames.left_out {
            0 if lines.is_empty() => lines.push("no stack was recorded".to_owned()),
            0 => {}
            others => lines.push(format!("and {others} other frames")),
        }
        Popup { title, lines, scroll: 0 }
    }

    /// A frame, and the text of its line if it is known.
    fn frame_lines(&self, frame: &FrameReport) -> impl Iterator<Item = String> + use<> {
        let place = Some(frame.file_line()).filter(|place| *place != frame.name);
        let text = self.device.snapshot().source.line(&frame.file, frame.line);
        let text = text.map(|text| format!("    {}", text.trim_start()));
        let name = place.map_or_else(String::new, |place| format!("{place} ")) + &frame.name;
        [Some(name), text].into_iter().flatten()
    }

    fn scroll_popup(&mut self, input: Input) {
        let Some(popup) = &mut self.popup else { return };
        let last = popup.lines.len().saturating_sub(1);
        match input {
            Input::Up | Input::Char('k') => popup.scroll = popup.scroll.saturating_sub(1),
            Input::Down | Input::Char('j') => popup.scroll = (popup.scroll + 1).min(last),
            Input::PageUp => popup.scroll = popup.scroll.saturating_sub(10),
            Input::PageDown => popup.scroll = (popup.scroll + 10).min(last),
            _ => self.popup = None,
        }
    }

    fn type_in(&mut self, input: Input) {
        let Some(prompt) = &mut self.prompt else { return };
        match input {
            Input::Char('\u{3}') | Input::Escape => self.prompt = None,
            Input::Char(character) if !character.is_control() => prompt.push(character),
            Input::Backspace if prompt.pop().is_none() => self.prompt = None,
            Input::Enter => {
                let place = self.prompt.take().unwrap_or_default();
                match place.trim().parse::<PositionSelector>() {
                    _ if place.trim() == "start" => self.go(0),
                    Ok(selector) => self.go_to(selector),
                    Err(message) => self.message = Some(str::to_owned(message)),
                }
            }
            _ => {}
        }
    }
}

/// `index` moved `by` as many rows of `count`.
fn moved_by(by: isize, index: usize, count: usize) -> usize {
    index.saturating_add_signed(by).min(count.saturating_sub(1))
}

fn keys_popup() -> Popup {
    Popup { title: "keys".to_owned(), lines: KEYS.lines().map(str::to_owned).collect(), scroll: 0 }
}
