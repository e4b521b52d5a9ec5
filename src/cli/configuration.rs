//! The file `oomscope.toml`: found, read.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::compare::gate::Config;

/// The configuration that is looked for.
pub(super) const CONFIG: &str = "oomscope.toml";

/// The configuration in `path`, or in the file found from the working directory upwards; with its path.
pub(super) fn configuration(path: Option<&Path>) -> anyhow::Result<(Config, Option<PathBuf>)> {
    let Some(path) = path.map(Path::to_owned).or_else(find_configuration) else {
        return Ok((Config::default(), None));
    };
    let shown = path.display();
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("{shown}: cannot be read"))?;
    let config = Config::parse(&text).map_err(|error| anyhow!("{shown}:{error}"))?;
    Ok((config, Some(path)))
}

/// `oomscope.toml`, or the first of `../oomscope.toml`, `../../oomscope.toml`, .. that is there.
fn find_configuration() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let up = |levels: usize| (0..levels).map(|_| "..").collect::<PathBuf>().join(CONFIG);
    (0..here.ancestors().count()).map(up).find(|path| path.is_file())
}
