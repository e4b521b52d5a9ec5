//! Reads rank and host from the path of a snapshot.

/// The number behind the last `rank` in `path`.
pub(crate) fn rank_in_path(path: &str) -> Option<u32> {
    let lower = path.to_ascii_lowercase();
    let (_, behind) = lower.rsplit_once("rank")?;
    let number = behind.trim_start_matches(['_', '-', '=', '.']);
    let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number.get(..digits)?.parse().ok()
}

/// The innermost directory in `path` with the name of a host.
pub(crate) fn host_in_path(path: &str) -> Option<String> {
    let (directories, _) = path.rsplit_once('/')?;
    let is_host = |name: &&str| {
        let lower = name.to_ascii_lowercase();
        lower.starts_with("node") || lower.starts_with("host")
    };
    directories.rsplit('/').find(is_host).map(str::to_owned)
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
}
