//! Whether snapshots can be compared with an entry of a baseline. Every path through `check` asks [`objections`].

use std::collections::BTreeMap;

use super::allow_missing::{AllowMissing, Objection, ObjectionCode};
use super::entries::BaselineEntry;
use super::judge::JudgedSnapshot;

/// The objections to comparing the snapshots `judged`, measured as `after`, with the entry `before`.
pub fn objections(
    before: &BaselineEntry,
    after: &BaselineEntry,
    judged: &[JudgedSnapshot],
    allow_missing: &AllowMissing,
) -> Vec<Objection> {
    use ObjectionCode::{OtherGpu, OtherProgram, OtherRelease, RepeatedRank};
    let gpu = before.gpu.as_deref().zip(after.gpu.as_deref()).filter(|(before, after)| before != after);
    let torch = before.torch.as_deref().zip(after.torch.as_deref()).filter(|(before, after)| differ(before, after));
    let program = first_file(before).zip(first_file(after)).filter(|_| !share_code(before, after));
    let found =
        [(OtherProgram, program), (OtherGpu, gpu), (OtherRelease, torch), (RepeatedRank, repeated_rank(judged))];
    let objection = |(code, pair): (ObjectionCode, Option<(&str, &str)>)| {
        let (before, after) = pair?;
        let allowed = allow_missing.allows(code.word());
        Some(Objection { code, before: before.to_owned(), after: after.to_owned(), allowed })
    };
    found.into_iter().filter_map(objection).collect()
}

/// The first two snapshots that would be the same row of an entry.
pub fn repeated_rank(judged: &[JudgedSnapshot]) -> Option<(&str, &str)> {
    let mut first: BTreeMap<(&str, u64), &str> = BTreeMap::new();
    let mut rows = judged.iter().flat_map(|snapshot| snapshot.devices.iter().map(move |device| (snapshot, *device)));
    rows.find_map(|(snapshot, device)| {
        let same = first.insert((&snapshot.name, device), &snapshot.path)?;
        Some((same, &*snapshot.path))
    })
}

/// The functions that hold memory at the peak. Lines move, and functions rarely do.
fn functions(entry: &BaselineEntry) -> impl Iterator<Item = (&str, &str)> {
    let lines = entry.devices.iter().flat_map(|device| &device.lines).filter(|line| line.line > 0);
    lines.map(|line| (&*line.file, &*line.function))
}

fn first_file(entry: &BaselineEntry) -> Option<&str> {
    functions(entry).next().map(|(file, _)| file)
}

fn share_code(before: &BaselineEntry, after: &BaselineEntry) -> bool {
    functions(before).any(|function| functions(after).any(|other| other == function))
}

/// Whether two descriptions of a release exclude each other: `2.15.0+cu128` as recorded, whose build does not matter, or
/// what a file shows, such as `2.10-2.11` and `2.14+`.
fn differ(before: &str, after: &str) -> bool {
    let exact = |text| release(text).filter(|release| release.split('.').count() > 2 && !release.contains('-'));
    if let (Some(before), Some(after)) = (exact(before), exact(after)) {
        return before != after;
    }
    let ranges = minors(before).zip(minors(after));
    ranges.is_some_and(|(before, after)| before.1 < after.0 || after.1 < before.0)
}

fn release(version: &str) -> Option<&str> {
    version.split('+').next()
}

/// The first and the last minor release.
fn minors(version: &str) -> Option<(u32, u32)> {
    let minor = |release: &str| release.split('.').nth(1)?.parse().ok();
    if let Some(first) = version.strip_suffix('+') {
        return Some((minor(first)?, u32::MAX));
    }
    let release = release(version)?;
    let (first, last) = release.split_once('-').unwrap_or((release, release));
    Some((minor(first)?, minor(last)?))
}

#[cfg(test)]
mod tests {
    use super::differ;

    #[test]
    fn releases_differ_only_if_they_exclude_each_other() {
        for (before, after) in [("2.9.1+cu128", "2.10.0"), ("2.9.0", "2.9.1"), ("2.10-2.11", "2.14+"), ("2.8", "2.9.1")]
        {
            assert!(differ(before, after) && differ(after, before), "{before} {after}");
        }
        for (before, after) in [("2.9.1+cu128", "2.9.1+cpu"), ("2.10-2.11", "2.11.0"), ("2.3+", "2.14+"), ("?", "2.8")]
        {
            assert!(!differ(before, after) && !differ(after, before), "{before} {after}");
        }
    }
}
