//! The answer beside the picture: why, what to do, how full the device is, and who holds the memory.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::palette::{EIGHTHS, colour};
use super::state::State;
use super::text::{ALARM, FAINT, PLAIN, STRONG, columns, put, without_directories, wrap};
use crate::base::units::{percent, ratio, size};

/// Lines that the legend keeps.
const LEGEND_LINES: u16 = 5;
/// Lines of a reason or an advice.
const MAX_LINES: usize = 5;
/// How the name of a line begins that ran in a backward pass.
const BACKWARD: &str = "the backward pass of ";
/// Holders that are listed.
const HOLDERS: usize = 5;

/// Draws into `area` and returns the lines taken.
pub(super) fn draw_side(state: &State<'_, '_>, buffer: &mut Buffer, area: Rect) -> u16 {
    let mut side = Side { buffer, area, end: area.height.saturating_sub(LEGEND_LINES), taken: 0 };
    if let Some(result) = state.result() {
        side.field("why", &result.why, ALARM);
        side.field("do", &result.action, STRONG);
    }
    side.gauge(state);
    side.holders(state);
    side.taken
}

struct Side<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
    /// Lines that may be taken.
    end: u16,
    taken: u16,
}

impl Side<'_> {
    /// The next line; `None` if there is no room.
    fn next(&mut self) -> Option<u16> {
        let y = self.area.y + self.taken;
        (self.taken < self.end).then(|| {
            self.taken += 1;
            y
        })
    }

    fn field(&mut self, name: &str, text: &str, style: Style) {
        let indent = 5;
        let lines =
            if text.is_empty() { Vec::new() } else { wrap(text, self.area.width.saturating_sub(indent).into()) };
        for (index, line) in lines.iter().take(MAX_LINES).enumerate() {
            let Some(y) = self.next() else { return };
            if index == 0 {
                put(self.buffer, self.area.x, y, indent, name, style);
            }
            put(self.buffer, self.area.x + indent, y, self.area.width, line.trim_start(), PLAIN);
        }
    }

    /// Allocated and reserved memory as parts of the device at the moment, or of what is reserved.
    fn gauge(&mut self, state: &State<'_, '_>) {
        let Some(recording) = &state.recording else { return };
        let moment = state.moment as usize;
        let [allocated, reserved] = [recording.allocated[moment], recording.reserved[moment]];
        let all = state.result().and_then(|result| result.capacity).unwrap_or(0).max(reserved).max(1);
        let Some(y) = self.next() else { return };
        let ends = [allocated, reserved].map(|bytes| u128::from(bytes) * u128::from(self.area.width) / u128::from(all));
        for index in 0..self.area.width {
            let symbol = match u128::from(index) {
                at if at < ends[0] => EIGHTHS[7],
                at if at < ends[1] => "▒",
                _ => "░",
            };
            self.buffer[(self.area.x + index, y)].set_symbol(symbol).set_style(PLAIN);
        }
        let Some(y) = self.next() else { return };
        let text = format!("{} allocated of {}", size(allocated), size(all));
        put(self.buffer, self.area.x, y, self.area.width, &text, FAINT);
    }

    fn holders(&mut self, state: &State<'_, '_>) {
        let Some(recording) = &state.recording else { return };
        let Some(y) = self.next() else { return };
        put(self.buffer, self.area.x, y, self.area.width, "held by (3: all)", STRONG);
        let total = recording.allocated[state.moment as usize];
        for row in state.holders().iter().take(HOLDERS) {
            let Some(y) = self.next() else { return };
            let figures = format!("{:>9} {:>5}", size(row.bytes), percent(ratio(row.bytes, total)));
            let room = self.area.width.saturating_sub(columns(&figures) + 3);
            put(self.buffer, self.area.x, y, 1, EIGHTHS[7], Style::new().fg(colour(row.slot, row.is_guess)));
            // The number of the line has to be seen, whatever comes before it.
            let name = match row.name.strip_prefix(BACKWARD) {
                Some(line) => format!("bwd {}", without_directories(line)),
                None => without_directories(&row.name).to_owned(),
            };
            put(self.buffer, self.area.x + 2, y, room, &name.replacen(" in ", " ", 1), PLAIN);
            put(self.buffer, self.area.x + 3 + room, y, self.area.width, &figures, PLAIN);
        }
        let _ = self.next(); // an empty line
    }
}
