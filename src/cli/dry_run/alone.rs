//! One rank of a job, alone.

use anyhow::bail;

/// Which rank of how many a command is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alone {
    rank: u64,
    world_size: u64,
    /// Ranks of its machine.
    beside: u64,
}

impl Alone {
    /// GPUs of a machine, where nothing else is said: most that are rented for such jobs have so many.
    pub(super) const DEVICES: u64 = 8;

    /// Rank `rank` of `world_size`, on a machine of so many devices.
    pub(super) fn new(rank: u64, world_size: u64, devices: u64) -> anyhow::Result<Self> {
        if rank >= world_size {
            bail!("--rank {rank}: ranks of --world-size {world_size} are 0 to {}", world_size - 1);
        }
        Ok(Self { rank, world_size, beside: devices.min(world_size) })
    }

    /// What torchrun would tell it.
    pub(super) fn environment(self) -> Vec<(&'static str, String)> {
        let Self { rank, world_size, beside } = self;
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
    use super::Alone;

    #[test]
    fn a_rank_is_told_its_place() {
        let told = |rank, world_size, devices| {
            let environment = Alone::new(rank, world_size, devices).unwrap().environment();
            environment
                .iter()
                .take(5)
                .map(|(_, value)| value.parse().unwrap())
                .collect::<Vec<u64>>()
        };
        assert_eq!(told(11, 64, 8), [11, 64, 3, 8, 1]);
        assert_eq!(told(1, 2, 8), [1, 2, 1, 2, 0]);
        assert_eq!(told(3, 64, 1), [3, 64, 0, 1, 3]);
        assert!(Alone::new(64, 64, 8).is_err());
    }
}
