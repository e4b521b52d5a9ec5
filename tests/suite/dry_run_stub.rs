//! The stub of CUDA that a dry run has: its device memory is `device::SimulatedDevice`, and what is read of it is zero.
//!
//! Needs a C compiler; without one these tests say nothing. Slow: a C compiler runs.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use oomscope::allocator::device::{DeviceMemory as _, Placement, SimulatedDevice};
use oomscope::base::units::MIB;

use crate::support::mutate::Random;

/// The stub as a program that reads calls, in a directory that goes with the result.
fn stub() -> Option<tempfile::TempDir> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let is_there = cfg!(all(target_os = "linux", target_arch = "x86_64"))
        && Command::new("cc").arg("--version").output().is_ok_and(|done| done.status.success());
    if !is_there {
        return None;
    }
    let here = root.join("tests/support/stub");
    let built = Command::new("cc")
        .args(["-O1", "-w", "-o"])
        .arg(directory.path().join("stub"))
        .arg(format!("-I{}", root.join("stub").display()))
        .arg(format!("-I{}", here.display()))
        .arg(here.join("main.c"))
        .args(["-ldl", "-lpthread"])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(directory)
}

/// What the stub answers to `calls`, on devices of `mib`, which place memory as `placement` says.
fn answers(stub: &tempfile::TempDir, mib: u64, placement: Placement, calls: &str) -> Vec<String> {
    let (word, seed) = match placement {
        Placement::Lowest => ("lowest", 1),
        Placement::Highest => ("highest", 1),
        Placement::Scattered(seed) => ("random", seed),
    };
    let mut child = Command::new(stub.path().join("stub"))
        .env("STUBCUDA_PLACEMENT", word)
        .env("STUBCUDA_SEED", seed.to_string())
        .env("STUBCUDA_TOTAL_MIB", mib.to_string())
        .env("STUBCUDA_DEVICES", "2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(calls.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// On, around and between the sizes in which memory comes.
fn size(random: &mut Random) -> u64 {
    let mut below = |end: u64| random.next() % end;
    match below(4) {
        0 => below(4096),
        1 => (below(8) * 2 * MIB + below(3)).saturating_sub(1),
        2 => below(40) * MIB,
        _ => below(200 * MIB),
    }
}

/// Random calls and what `device::SimulatedDevice` answers, in the words of the stub's program.
fn simulated(seed: u64, mib: u64, placement: Placement) -> (String, Vec<String>) {
    let mut random = Random::new(seed);
    let mut device = SimulatedDevice::new(1, mib * MIB).with_placement(placement);
    let mut other = SimulatedDevice::new(1, 100 * MIB);
    let bases = (other.allocate(1).unwrap(), other.reserve(1, 1).unwrap());
    let (mut taken, mut reserved, mut mapped) = (Vec::new(), Vec::new(), Vec::new());
    let (mut calls, mut expected) = (String::new(), Vec::new());
    for _ in 0..400 {
        let size = size(&mut random);
        let pick = |list: &[(u64, u64)], number: u64| (!list.is_empty()).then(|| number as usize % list.len());
        let number = random.next();
        let (call, answer) = match random.below(7) {
            0..=2 => {
                let got = device.allocate(size).map(|addr| addr - bases.0);
                if let Ok(at) = got {
                    taken.push((at, size));
                }
                (format!("a {size}"), got.map_or_else(|_| "0 oom".to_owned(), |at| at.to_string()))
            }
            3 => {
                let Some(index) = pick(&taken, number) else { continue };
                let (at, size) = taken.swap_remove(index);
                device.free(at + bases.0, size);
                (format!("f {at}"), "0".to_owned())
            }
            4 => {
                let at = device.reserve(size, 2 * MIB).unwrap() - bases.1;
                reserved.push((at, size));
                (format!("r {size}"), at.to_string())
            }
            5 => {
                let Some(index) = pick(&reserved, number) else { continue };
                let got = device.map(reserved[index].0 + bases.1, size);
                if got.is_ok() {
                    mapped.push((reserved[index].0, size));
                }
                (format!("m 0 {size}"), if got.is_ok() { "0" } else { "0 oom" }.to_owned())
            }
            _ => {
                let Some(index) = pick(&mapped, number) else { continue };
                let (at, size) = mapped.swap_remove(index);
                device.unmap(at + bases.1, size);
                (format!("u 0 {size}"), "0".to_owned())
            }
        };
        calls.push_str(&call);
        calls.push('\n');
        expected.push(format!("{answer} {}", device.free_bytes()));
    }
    (calls, expected)
}

#[test]
fn its_memory_is_the_simulated_device() {
    let Some(stub) = stub() else { return };
    for seed in 0..24 {
        let mib = [100, 512, 4000, 80_000][seed as usize % 4];
        let placement = [Placement::Lowest, Placement::Highest, Placement::Scattered(seed + 1)];
        let placement = placement[seed as usize / 4 % 3];
        let (calls, expected) = simulated(seed, mib, placement);
        let given = answers(&stub, mib, placement, &calls);
        for ((call, given), expected) in calls.lines().zip(&given).zip(&expected) {
            assert_eq!(given, expected, "seed {seed}, {mib} MiB, {placement:?}: {call}");
        }
        assert_eq!(given.len(), expected.len());
    }
}

#[test]
fn every_read_of_a_device_value_gives_zero() {
    let Some(stub) = stub() else { return };
    assert_eq!(answers(&stub, 1000, Placement::Lowest, "c\n"), ["zero"]);
}

#[test]
fn an_algorithm_fits_its_place() {
    let Some(stub) = stub() else { return };
    assert_eq!(answers(&stub, 1000, Placement::Lowest, "h\n"), ["fits"]);
}

#[test]
fn a_capture_outlasts_any_number_of_streams() {
    let Some(stub) = stub() else { return };
    assert_eq!(answers(&stub, 1000, Placement::Lowest, "s\n"), ["kept"]);
}

#[test]
fn a_graph_takes_free_memory_by_its_kernels() {
    let Some(stub) = stub() else { return };
    assert_eq!(answers(&stub, 1000, Placement::Lowest, "g\n"), ["freed"]);
}
