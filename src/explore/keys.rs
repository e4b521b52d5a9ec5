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
pub(super) const KEYS: &str = include_str!("keys.txt");

/// The most useful keys, for the foot.
pub(super) const FOOT: [&str; 8] =
    ["? keys", "q leave", "Tab view", "w s zoom", "o failure", "p peak", ": go to", "d mark"];
