//! A dry run of one rank of a job, without the other ranks.

/// `--rank 3/64`: the rank and the number of ranks.
pub(super) type RankOfJob = (u64, u64);

/// Parses `3/64`.
pub(super) fn parse_rank(text: &str) -> Result<RankOfJob, String> {
    let parsed = text.split_once('/').and_then(|(rank, ranks)| Some((rank.parse().ok()?, ranks.parse().ok()?)));
    match parsed {
        Some((rank, ranks)) if rank < ranks => Ok((rank, ranks)),
        Some((_, ranks @ 1..)) => Err(format!("the ranks of {ranks} are 0 to {}", ranks - 1)),
        _ => Err("give a rank and the number of ranks, such as 3/64".to_owned()),
    }
}

/// Default number of GPUs of a machine: most machines for multi-node jobs have 8.
pub(super) const DEFAULT_DEVICES: u64 = 8;

/// The environment variables that torchrun would set for a rank on a machine with this number of `devices`.
pub(super) fn rank_environment((rank, world_size): RankOfJob, devices: u64) -> Vec<(&'static str, String)> {
    let on_machine = devices.min(world_size);
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", world_size.to_string()),
        ("LOCAL_RANK", (rank % on_machine).to_string()),
        ("LOCAL_WORLD_SIZE", on_machine.to_string()),
        ("GROUP_RANK", (rank / on_machine).to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", "29500".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::{parse_rank, rank_environment};

    #[test]
    fn a_rank_gets_the_environment_of_torchrun() {
        let ranks = |job, devices| {
            let environment = rank_environment(parse_rank(job).unwrap(), devices);
            environment.iter().take(5).map(|(_, value)| value.parse().unwrap()).collect::<Vec<u64>>()
        };
        assert_eq!(ranks("11/64", 8), [11, 64, 3, 8, 1]);
        assert_eq!(ranks("1/2", 8), [1, 2, 1, 2, 0]);
        assert_eq!(ranks("3/64", 1), [3, 64, 0, 1, 3]);
        assert!(["64/64", "3", "0/0", "a/2", "-1/2"].iter().all(|wrong| parse_rank(wrong).is_err()));
    }
}
