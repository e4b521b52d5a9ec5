//! The terminal: raw mode and the alternate screen, and back, however the program ends.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, SetAttribute};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier};

/// Whether the terminal has to be restored.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while the program draws on all of it.
pub(super) struct Screen {
    shown: Buffer,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        restore_at_end();
        IS_TAKEN.store(true, Ordering::Relaxed);
        terminal::enable_raw_mode()?;
        let screen = Self { shown: Buffer::empty(Rect::ZERO) };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Draws with `paint`, and writes the cells that changed.
    pub(super) fn draw(&mut self, paint: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let mut next = Buffer::empty(Rect::new(0, 0, width, height));
        paint(&mut next);
        let mut bytes = Vec::new();
        if next.area != self.shown.area {
            self.shown = Buffer::empty(next.area);
            queue!(bytes, SetAttribute(Attribute::Reset), Clear(ClearType::All))?;
        }
        let mut style = None;
        let mut cursor = None;
        for (x, y, cell) in self.shown.diff(&next) {
            if cursor != Some((x, y)) {
                queue!(bytes, MoveTo(x, y))?;
            }
            let wanted = (cell.fg, cell.bg, cell.modifier);
            if style.replace(wanted) != Some(wanted) {
                set_style(&mut bytes, cell)?;
            }
            bytes.write_all(cell.symbol().as_bytes())?;
            // The terminal decides how wide another character is.
            cursor = cell.symbol().is_ascii().then_some((x + 1, y));
        }
        self.shown = next;
        let mut out = io::stdout().lock();
        out.write_all(&bytes)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn set_style(out: &mut Vec<u8>, cell: &Cell) -> io::Result<()> {
    queue!(out, SetAttribute(Attribute::Reset))?;
    let attributes =
        [(Modifier::BOLD, Attribute::Bold), (Modifier::DIM, Attribute::Dim), (Modifier::REVERSED, Attribute::Reverse)];
    for (modifier, attribute) in attributes {
        if cell.modifier.contains(modifier) {
            queue!(out, SetAttribute(attribute))?;
        }
    }
    for (color, first) in [(cell.fg, 30), (cell.bg, 40)] {
        if let Some(code) = color_code(color, first) {
            write!(out, "\x1b[{code}m")?;
        }
    }
    Ok(())
}

/// The code of a colour of the screen; `first` is that of black. Crossterm's own codes of the 16 colours are those of 256.
fn color_code(color: Color, first: u8) -> Option<String> {
    Some(match color {
        Color::Rgb(red, green, blue) => format!("{};2;{red};{green};{blue}", first + 8),
        Color::Indexed(index @ 0..8) => (first + index).to_string(),
        Color::Indexed(index @ 8..16) => (first + 60 + index - 8).to_string(),
        Color::Indexed(index) => format!("{};5;{index}", first + 8),
        Color::Red => (first + 1).to_string(),
        Color::Green => (first + 2).to_string(),
        Color::Yellow => (first + 3).to_string(),
        Color::DarkGray => (first + 60).to_string(),
        _ => return None,
    })
}

/// Restores the terminal, once: to leave the alternate screen again would move the cursor into the message of a panic.
/// Where it fails the terminal is gone.
fn restore() {
    if !IS_TAKEN.swap(false, Ordering::Relaxed) {
        return;
    }
    let _ = execute!(io::stdout(), SetAttribute(Attribute::Reset), Show, LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
}

/// From now on a panic, and a signal that ends the program, restore the terminal first.
fn restore_at_end() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        report(panic);
    }));
    #[cfg(unix)]
    restore_at_signal();
}

#[cfg(unix)]
fn restore_at_signal() {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    /// A terminal that accepts nothing does not keep the program alive.
    const MAX_WAIT: Duration = Duration::from_millis(500);

    let Ok(mut signals) = Signals::new([SIGHUP, SIGINT, SIGTERM]) else { return };
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let (done, wait) = channel();
            std::thread::spawn(move || {
                restore();
                done.send(())
            });
            let _ = wait.recv_timeout(MAX_WAIT);
            let _ = emulate_default_handler(signal);
        }
    });
}
