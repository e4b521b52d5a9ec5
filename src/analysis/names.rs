//! Reads rank and host from the path of a snapshot.

/// The number behind the last `rank` in `path`.
pub(crate) fn rank_in_path(path: &str) -> Option<u32> {
    let lower = path.to_ascii_lowercase();
    let (_, behind) = lower.rsplit_once("rank")?;
    let number = behind.trim_start_matches(['_', '-', '=', '.']);
    number.get(..number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len()))?.parse().ok()
}

/// The reasons in the names of the recorder's files.
#[cfg(any(feature = "cli", test))]
const REASONS: [&str; 3] = ["oom", "exit", "asked"];

/// Whether `path` is of a snapshot that another process requested, so that a later one of its own may follow.
#[cfg(feature = "cli")]
pub(crate) fn is_requested(path: &str) -> bool {
    without_reason(path).is_some_and(|(_, reason)| reason == "asked")
}

/// Removes the reason and number that `oomscope run` adds to a file name, and returns the reason: `rank2-oom1.pickle`
/// is one of `rank2.pickle`.
#[cfg(any(feature = "cli", test))]
pub(crate) fn without_reason(path: &str) -> Option<(String, &'static str)> {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let stem_end = name + path.get(name..)?.find('.')?;
    let (stem, reason) = path.get(..stem_end)?.rsplit_once('-')?;
    let word = reason.trim_end_matches(|c: char| c.is_ascii_digit());
    let _: u64 = reason.get(word.len()..)?.parse().ok()?;
    Some((format!("{stem}{}", path.get(stem_end..)?), REASONS.iter().find(|reason| **reason == word)?))
}

/// The innermost directory in `path` with the name of a host.
pub(crate) fn host_in_path(path: &str) -> Option<String> {
    let (directories, _) = path.rsplit_once('/')?;
    let host = directories.rsplit('/').find(|name| {
        let lower = name.to_ascii_lowercase();
        lower.starts_with("node") || lower.starts_with("host")
    });
    host.map(str::to_owned)
}

/// `path` without the number of the training step in it, and that number: `iteration_200/rank0.pickle` has 200.
pub(super) fn without_step(path: &str) -> Option<(String, u64)> {
    const WORDS: [&str; 5] = ["iteration", "iter", "epoch", "global_step", "step"];
    let lower = path.to_ascii_lowercase();
    let behind = WORDS.iter().filter_map(|word| Some(lower.rfind(word)? + word.len())).max()?;
    let number = behind + lower.get(behind..)?.find(|c: char| !matches!(c, '_' | '-' | '='))?;
    let digits = lower.get(number..)?;
    let digits = digits.get(..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()))?;
    Some((format!("{}#{}", path.get(..number)?, path.get(number + digits.len()..)?), digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_hosts_are_read_from_paths() {
        assert_eq!(rank_in_path("/a/rank3.pickle"), Some(3));
        assert_eq!(rank_in_path("run/rank_12/step.pickle"), Some(12));
        assert_eq!(rank_in_path("run/Rank-7_memory.pickle.gz"), Some(7));
        assert_eq!(rank_in_path("frank.pickle"), None);
        assert_eq!(rank_in_path("a.pickle"), None);
        assert_eq!(host_in_path("job/node-1/rank3.pickle").as_deref(), Some("node-1"));
        assert_eq!(host_in_path("node.pickle"), None);
    }

    #[test]
    fn files_of_the_recorder_are_of_one_rank() {
        for (path, name, reason) in [
            ("a-b/rank2-oom1.pickle.gz", "a-b/rank2.pickle.gz", "oom"),
            ("node-7-pid12-asked3.pickle", "node-7-pid12.pickle", "asked"),
            ("rank2-asked12.pickle", "rank2.pickle", "asked"),
        ] {
            assert_eq!(without_reason(path), Some((name.to_owned(), reason)));
        }
        for other in ["rank2.pickle", "rank-2.pickle", "rank2-oom.pickle", "a-oom1/rank2.pickle", "rank2-oom1"] {
            assert_eq!(without_reason(other), None);
        }
    }

    #[test]
    fn steps_are_read_from_paths() {
        for (path, name, step) in [
            ("out/iteration_200/rank0.pickle", "out/iteration_#/rank0.pickle", 200),
            ("rank3_global_step-7.pickle", "rank3_global_step-#.pickle", 7),
            ("rank3_Step12.pickle.gz", "rank3_Step#.pickle.gz", 12),
        ] {
            assert_eq!(without_step(path), Some((name.to_owned(), step)));
        }
        for other in ["rank3.pickle", "stepper/rank3.pickle", "step", "iteration_/rank1.pickle"] {
            assert_eq!(without_step(other), None);
        }
    }
}
