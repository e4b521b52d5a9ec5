//! The threads behind the screen: one reads the terminal, one works for each device that is shown.

use std::sync::mpsc::Sender;
use std::thread;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::analysis::{Options, analyze_study};
use crate::explore::{Analyzed, Input, Recording};
use crate::study::{DeviceStudy, Study};

/// Number of rows in tables of the analysis, which the screen does not show.
const TABLE_ROWS: usize = 10;

/// A message to the thread that draws; results are of a device.
pub(super) enum Message {
    Key(Input),
    Resized,
    /// The terminal can no longer be read.
    Closed,
    Recording(u64, Box<Recording>),
    Analysis(u64, Analyzed),
}

/// Reads the terminal in a thread of its own.
pub(super) fn read_inputs(sender: Sender<Message>) {
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            let resized = matches!(event, Event::Resize(..)).then_some(Message::Resized);
            // A slow link joins Escape and the key after it.
            let is_joined = matches!(event, Event::Key(KeyEvent { modifiers: KeyModifiers::ALT, .. }));
            let escape = is_joined.then_some(Message::Key(Input::Escape));
            let messages = [resized, escape, input(&event).map(Message::Key)];
            if messages.into_iter().flatten().any(|message| sender.send(message).is_err()) {
                return;
            }
        }
        // Nobody waits any more if the program is at its end.
        let _ = sender.send(Message::Closed);
    });
}

fn input(event: &Event) -> Option<Input> {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press | KeyEventKind::Repeat, .. }) = event else {
        return None;
    };
    let far = modifiers.contains(KeyModifiers::SHIFT);
    Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Input::Char('\u{3}'),
        KeyCode::Char(character) if !modifiers.contains(KeyModifiers::CONTROL) => Input::Char(*character),
        KeyCode::Left => Input::Left(far),
        KeyCode::Right => Input::Right(far),
        KeyCode::Up => Input::Up,
        KeyCode::Down => Input::Down,
        KeyCode::PageUp => Input::PageUp,
        KeyCode::PageDown => Input::PageDown,
        KeyCode::Home => Input::Home,
        KeyCode::End => Input::End,
        KeyCode::Enter => Input::Enter,
        KeyCode::Esc => Input::Escape,
        KeyCode::Backspace => Input::Backspace,
        KeyCode::Tab => Input::Tab,
        _ => return None,
    })
}

/// Reads the allocations of `device` and analyzes `study`, of the file `name`, in the background.
pub(super) fn work(
    study: &'static Study<'static>,
    device: DeviceStudy<'static, 'static>,
    name: String,
    sender: Sender<Message>,
) {
    thread::spawn(move || {
        // The screen may be gone.
        let _ = sender.send(Message::Recording(device.id(), Box::new(Recording::from_device(device))));
        let options = Options { scope: study.scope(), top: TABLE_ROWS, ..Options::default() };
        let report = analyze_study(study, &name, 0, options);
        let _ = sender.send(Message::Analysis(device.id(), Analyzed::from_report(device, &report)));
    });
}
