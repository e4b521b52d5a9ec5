//! A dry run of one rank of a job, without the other ranks.

use anyhow::bail;

#[derive(Debug, Clone, Copy)]
pub(super) struct SingleRank {
    rank: u64,
    world_size: u64,
    /// Number of ranks on its machine.
    local_world_size: u64,
}

impl SingleRank {
    /// Default number of GPUs of a machine: most machines for multi-node jobs have 8.
    pub(super) const DEFAULT_DEVICES: u64 = 8;

    pub(super) fn new(rank: u64, world_size: u64, devices: u64) -> anyhow::Result<Self> {
        if rank >= world_size {
            bail!("--rank {rank}: ranks of --world-size {world_size} are 0 to {}", world_size - 1);
        }
        Ok(Self { rank, world_size, local_world_size: devices.min(world_size) })
    }

    /// The environment variables that torchrun would set.
    pub(super) fn environment(self) -> Vec<(&'static str, String)> {
        let Self { rank, world_size, local_world_size: beside } = self;
        vec![
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", world_size.to_string()),
            ("LOCAL_RANK", (rank % beside).to_string()),
            ("LOCAL_WORLD_SIZE", beside.to_string()),
            ("GROUP_RANK", (rank / beside).to_string()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", "29500".to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::SingleRank;

    #[test]
    fn a_rank_gets_the_environment_of_torchrun() {
        let ranks = |rank, world_size, devices| {
            let environment = SingleRank::new(rank, world_size, devices).unwrap().environment();
            environment.iter().take(5).map(|(_, value)| value.parse().unwrap()).collect::<Vec<u64>>()
        };
        assert_eq!(ranks(11, 64, 8), [11, 64, 3, 8, 1]);
        assert_eq!(ranks(1, 2, 8), [1, 2, 1, 2, 0]);
        assert_eq!(ranks(3, 64, 1), [3, 64, 0, 1, 3]);
        assert!(SingleRank::new(64, 64, 8).is_err());
    }
}
