//! The generator of large snapshots writes what PyTorch could have written, and reading a large file
//! takes little memory of one's own.

use crate::support::generator::{Options, Summary, write_snapshot};
use oomscope::replay::literal::{LiteralReplay, Totals, Tracking, recorded_settings};
use oomscope::snapshot::{Action, Snapshot};

/// Both ways of stacks: a few that come again and again, and no two alike.
const STACKS: [Option<usize>; 2] = [Some(200), None];

fn generated(seed: u64, distinct_stacks: Option<usize>) -> (Vec<u8>, Summary) {
    let mut bytes = Vec::new();
    let options = Options { seed, target_bytes: 1_000_000, depth: 20, distinct_stacks, ..Options::default() };
    let summary = write_snapshot(&mut bytes, &options).unwrap();
    (bytes, summary)
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for stacks in STACKS {
        let (bytes, summary) = generated(7, stacks);
        assert!(generated(7, stacks) == (bytes.clone(), summary.clone()), "{stacks:?}");
        assert!(generated(8, stacks).0 != bytes, "{stacks:?}");
        assert_eq!(summary.bytes, bytes.len() as u64);
        assert!((1_000_000..1_300_000).contains(&summary.bytes), "{} bytes", summary.bytes);
    }
}

#[test]
fn a_generated_snapshot_is_read_as_written() {
    for stacks in STACKS {
        let (bytes, summary) = generated(7, stacks);
        let snapshot = Snapshot::read(&bytes, &|_| {}).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(snapshot.entries.len() as u64, summary.events);
        assert_eq!((snapshot.torch.first, snapshot.torch.last), (Some(14), None));
        assert!(snapshot.warnings.to_vec().is_empty(), "{:?}", snapshot.warnings);
        let all = 0..snapshot.entries.len();
        let of = |action| all.clone().filter(|row| snapshot.entries.action(*row) == Some(action)).count();
        assert!(of(Action::Alloc) > 100 && of(Action::FreeCompleted) > 50);
        assert!(all.clone().all(|row| snapshot.entries.get(row).unwrap().stack.0 != 0));
    }
}

#[test]
fn devices_have_equal_traces() {
    let options = Options { target_bytes: 1_000_000, depth: 20, devices: 3, ..Options::default() };
    let mut bytes = Vec::new();
    let summary = write_snapshot(&mut bytes, &options).unwrap();
    let snapshot = Snapshot::read(&bytes, &|_| {}).unwrap();
    let entries: Vec<usize> = snapshot.devices().map(|device| device.len()).collect();
    assert_eq!(entries, [summary.events as usize / 3; 3]);
    assert!(snapshot.devices().all(|device| device.segments().count() * 3 == snapshot.segments.len()));
    assert_eq!(summary.bytes, bytes.len() as u64);
}

#[test]
fn a_generated_trace_leads_exactly_to_its_segments() {
    for stacks in STACKS {
        let (bytes, _) = generated(7, stacks);
        let snapshot = Snapshot::read(&bytes, &|_| {}).unwrap();
        let settings = recorded_settings(&snapshot);
        let mut last = Totals::default();
        let outcome = LiteralReplay { device: snapshot.device(0), settings: &settings, settings_changes: &[] }
            .run(Tracking::Totals, |step| last = step.tiling.totals());
        assert_eq!((outcome.contradictions, outcome.end_differences), (0, 0), "{stacks:?}");
        assert_eq!(outcome.initial_totals, Totals::default());
        assert_eq!(last.reserved, snapshot.segments.iter().map(|s| s.total_size).sum::<u64>());
        assert!(last.allocated > 0);
    }
}

/// What a process holds that is no part of any file, in bytes, while it runs.
#[cfg(target_os = "linux")]
fn private_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "slow: .ci/release runs it"]
fn a_large_file_takes_a_quarter_of_its_size_in_memory() {
    let mut file = tempfile::NamedTempFile::with_suffix(".pickle").unwrap();
    let options = Options { target_bytes: 60_000_000, ..Options::default() };
    let size = {
        let mut out = std::io::BufWriter::new(file.as_file_mut());
        write_snapshot(&mut out, &options).unwrap().bytes
    };
    let limit = size / 4 + (8 << 20);
    let mut child = crate::support::program::command()
        .args(["analyze", "--format", "json"])
        .arg(file.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (mut highest, mut samples) = (0, 0);
    let status = loop {
        if let Some(bytes) = private_bytes(child.id()) {
            highest = highest.max(bytes);
            samples += 1;
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    assert!(status.success());
    assert!(samples > 20 && highest > 1 << 20, "{samples} samples up to {highest} bytes");
    assert!(highest <= limit, "{highest} bytes for a file of {size}, more than {limit}");
}
