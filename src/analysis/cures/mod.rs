//! The change of the program that frees memory: a table from who keeps it, what it keeps and the statement that put it
//! there to the change. Names and statements are the recorder's; without them, the calls and lifetimes of blocks are evidence.

mod facts;
mod find;
mod table;
#[cfg(test)]
mod tests;

pub use self::facts::Fact;
pub use self::find::{Cure, CureHolder};
pub(super) use self::find::{find_cure, find_cures_by_stacks};
pub use self::table::{CureKind, CureRow};
