//! The keys: as in the HTML page.

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
pub(super) const KEYS: [(&str, &str); 16] = [
    ("1 2 3 Tab", "memory over time, map, holders"),
    ("← →", "one entry; ten with Shift; a tenth of the picture with PgUp PgDn"),
    ("w s + -", "zoom in or out"),
    ("a f", "move the zoom to the left or right"),
    ("0", "the whole trace"),
    ("Home End", "the first or last entry"),
    ("p", "the peak"),
    ("o", "the next failed request"),
    ("[ ]", "the previous or next end of a training step"),
    (":", "go to an entry, step:7, peak, failure, start or end"),
    ("g", "stack and list by category, line, or name"),
    ("↑ ↓ j k", "select a row, or a block of the map"),
    ("Enter", "its stack with the source"),
    ("d m", "mark this moment; at another one, show the difference"),
    ("Esc", "close; clear the mark"),
    ("r q", "the next device of the file; leave"),
];

/// The most useful keys, for the foot.
pub(super) const FOOT: [&str; 8] =
    ["? keys", "q leave", "Tab view", "w s zoom", "o failure", "p peak", ": go to", "d mark"];
