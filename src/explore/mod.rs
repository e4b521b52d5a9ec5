//! The screen of `oomscope explore`: one device of a recording, in a terminal.
//!
//! In: a [`DeviceStudy`](crate::study::DeviceStudy) and an analysis, as the program around has them ready, and
//! [`Input`]s of the user. Out: cells of a `ratatui` buffer ([`draw()`]), and an [`Effect`] for the program around.
//! [`State::handle`] and [`draw()`] are pure, so tests need no terminal. All text is escaped in one function. Knows no
//! terminal, no thread and no file.

mod draw;
mod draw_map;
mod draw_memory;
mod handle;
mod layout;
mod palette;
mod recording;
mod rows;
mod side;
mod state;
mod text;

pub use self::draw::draw;
pub use self::handle::Input;
pub use self::palette::{Colours, Look};
pub use self::recording::Recording;
pub use self::state::{Analyzed, Effect, State};
