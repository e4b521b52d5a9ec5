//! How many random cases a test tries.
#![allow(unreachable_pub)]

use proptest::test_runner::Config;

/// The number of cases that `PROPTEST_CASES` leaves of `all`: a quarter of them in the gate, where it is 64, more than all
/// where somebody looks further.
pub fn cases(all: u64) -> u64 {
    let default = Config::default().cases;
    (all * u64::from(default)).div_ceil(256).max(1)
}

/// A configuration of proptest with [`cases`].
pub fn random(all: u32) -> Config {
    let cases = cases(all.into()).try_into().unwrap_or(u32::MAX);
    Config { cases, failure_persistence: None, ..Config::default() }
}
