//! Names of the ranks of a job.

/// The paths of rows without their common directory and ending.
pub(crate) struct Names {
    directory: String,
    ending: String,
}

impl Names {
    pub(crate) fn from_paths<'p>(paths: impl Iterator<Item = &'p str> + Clone) -> Self {
        let common = paths.clone().reduce(common_prefix);
        let directory = common.and_then(|common| Some(&common[..=common.rfind('/')?]));
        Self { directory: directory.unwrap_or_default().to_owned(), ending: common_ending(paths) }
    }

    pub(crate) fn shorten<'p>(&self, path: &'p str) -> &'p str {
        let name = path.strip_prefix(&self.directory).unwrap_or(path);
        name.strip_suffix(&self.ending).unwrap_or(name)
    }
}

fn common_prefix<'p>(a: &'p str, b: &'p str) -> &'p str {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    &a[..same.map(|(c, _)| c.len_utf8()).sum()]
}

/// The common ending of all paths, such as `.pickle.gz`; empty if they have different ones, or none of these.
fn common_ending<'p>(mut paths: impl Iterator<Item = &'p str> + Clone) -> String {
    let ending = |path: &'p str| {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let start = [".pickle", ".pkl", ".json"].iter().find_map(|ending| name.rfind(ending))?;
        Some(&name[start..])
    };
    let first = paths.clone().next().and_then(ending);
    first.filter(|ending| paths.all(|path| path.ends_with(ending))).unwrap_or_default().to_owned()
}
