//! Code that decides by options of its own what PyTorch allocates: engines that serve language models, and trainers.

use std::sync::LazyLock;

use serde::Deserialize;

use super::rows;

/// Code known by its frames in a traceback, or by words that it prints.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Place {
    /// The engine whose files these are, by its name.
    pub engine: String,
    /// Parts of the paths of its files, or of more files than an engine's.
    pub files: Vec<String>,
    /// Its functions; empty for all.
    pub functions: Vec<String>,
    /// Words of its log and its command line.
    pub words: Vec<String>,
    /// The command that starts it without a GPU, and tries what makes room.
    pub dry_run: Option<String>,
    /// The advice for a full device.
    #[serde(rename = "do")]
    pub advice: String,
}

static PLACES: LazyLock<Vec<Place>> = LazyLock::new(|| rows(include_str!("places.toml")));

/// Every place; the first that a traceback or a log shows counts.
pub fn places() -> impl Iterator<Item = &'static Place> {
    PLACES.iter()
}
