//! `oomscope explain`: what PyTorch printed is found wherever it stands, and no more is concluded than the
//! numbers allow.

use crate::support::program::analyze;
use crate::support::{fixtures, recorded};

use oomscope::explain::message;
use oomscope::explain::{ExplainReport, ExplainedFailure, explain};

pub(super) fn report(text: &[u8]) -> Option<ExplainReport> {
    explain(&message::read(text).unwrap(), "log")
}

fn fixture(name: &str) -> ExplainReport {
    let path = fixtures::directory().join("logs").join(name);
    report(&std::fs::read(path).unwrap()).unwrap()
}

fn only(text: &str) -> ExplainedFailure {
    let failures = report(text.as_bytes()).unwrap().failures;
    let [failure] = &failures[..] else { panic!("{text}: {failures:?}") };
    failure.clone()
}

/// A message of today's wording. Sizes as printed.
pub(super) fn worded(requested: &str, total: &str, free: &str, middle: &str, held: &str, left: &str) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {requested}. GPU 0 has a total \
         capacity of {total} of which {free} is free. {middle}Of the allocated memory {held} is allocated by \
         PyTorch, and {left} is reserved by PyTorch but unallocated. If reserved but unallocated memory is \
         large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See \
         documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html)"
    )
}

#[test]
fn programs_that_failed_on_purpose_get_the_verdict_they_were_made_for() {
    for (name, verdict, confidence, line) in [
        ("2.15.0-capacity.log", "capacity", "certain", 16),
        ("2.15.0-expandable.log", "capacity", "certain", 16),
        ("2.15.0-limit.log", "memory-limit", "certain", 16),
        ("2.15.0-others.log", "non-pytorch", "possible", 16),
        ("2.15.0-fragmentation.log", "fragmentation", "possible", 16),
        ("2.15.0-varying.log", "fragmentation", "possible", 16),
        ("2.15.0-private-pool.log", "private-pool", "possible", 16),
        ("2.9.1-expandable.log", "capacity", "certain", 16),
        ("2.9.1-fragmentation.log", "fragmentation", "possible", 16),
        ("2.9.1-private-pool.log", "private-pool", "possible", 16),
    ] {
        let report = fixture(name);
        let [failure] = &report.failures[..] else { panic!("{name}") };
        assert_eq!((failure.verdict.word(), failure.confidence.word()), (verdict, confidence), "{name}");
        assert_eq!(failure.settled_by.is_some(), confidence == "possible", "{name}");
        let culprit = failure.culprit.as_ref().unwrap();
        assert_eq!((culprit.file.as_str(), culprit.line), ("/app/train.py", line), "{name}");
        let expandable = "expandable_segments:True";
        let advised = failure.advice.iter().any(|advice| advice.contains(expandable));
        assert_eq!(advised, verdict == "fragmentation", "{name}: {:?}", failure.advice);
    }
}

/// The message of a recorded failure comes to what its snapshot comes to, and its numbers are those of the
/// allocator's statistics at that moment.
#[test]
fn messages_of_every_release_agree_with_their_snapshots() {
    let mut releases = 0;
    for recording in recorded::all() {
        let Some(error) = &recording.error else { continue };
        let found = only(error);
        let minor: u32 = recording.name.split('.').nth(1).unwrap().parse().unwrap();
        let version = found.torch_version.as_ref().unwrap();
        let (first, last) = version.split_once('-').unwrap_or((version, version));
        let bound = |text: &str| text.trim_start_matches("2.").trim_end_matches('+').parse::<u32>();
        assert!(bound(first).unwrap() <= minor, "{}: {version}", recording.name);
        assert!(version.ends_with('+') || minor <= bound(last).unwrap(), "{}", recording.name);
        if minor == 3 {
            // The text ends where the number of device 0 should stand.
            assert_eq!((found.verdict.word(), found.device, version.as_str()), ("unknown", Some(0), "2.3"));
            continue;
        }
        releases += 1;
        let snapshot = analyze(&[&format!("fixtures/{}.pickle.gz", recording.name)]);
        let ooms = snapshot["snapshots"][0]["devices"][0]["ooms"].as_array().unwrap();
        let last = ooms.last().unwrap();
        // A message shows nothing of the requests that follow: with these, pieces of memory were not the cause.
        let is_dead_end = last["verdict_reason"].as_str().unwrap().contains("those after it need");
        let verdict = if is_dead_end { "fragmentation".into() } else { last["verdict"].clone() };
        assert_eq!(found.verdict.word(), verdict, "{}", recording.name);
        for (name, key) in [
            ("requested", "segment_bytes"),
            ("free", "device_free_bytes"),
            ("reserved", "reserved_bytes"),
            ("allocated", "allocated_bytes"),
        ] {
            let figure = found.figures.iter().find(|f| f.name == name).unwrap();
            let exact = last[key].as_u64().unwrap();
            let off = figure.bytes.abs_diff(exact);
            assert!(off <= figure.error_bytes, "{} {name}: {exact} {figure:?}", recording.name);
        }
    }
    assert!(releases >= 15, "{releases}");
}

#[test]
fn wordings_of_old_releases_and_other_devices_are_read() {
    let old = "(GPU 2; 7.93 GiB total capacity; 6.92 GiB already allocated; 83.50 MiB free; ";
    for (text, verdict, version, requested) in [
        (
            format!("RuntimeError: CUDA out of memory. Tried to allocate 128.00 MiB {old}10.50 MiB cached)"),
            "capacity",
            Some("1.0-1.3"),
            Some(128 << 20),
        ),
        (
            format!("RuntimeError: CUDA out of memory. Tried to allocate 128.00 MiB {old}7.60 GiB reserved in total by PyTorch)"),
            "fragmentation",
            Some("1.4-2.0"),
            Some(128 << 20),
        ),
        (
            format!("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB {old}7.00 GiB allowed; 6.99 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"),
            "memory-limit",
            Some("1.13-2.0"),
            Some(64 << 20),
        ),
        (
            "CUDA out of memory. Tried to allocate 448.00 MiB. GPU 1 has a total capacty of 79.10 GiB of which 364.31 MiB is free. Process 175080 has 1.46 GiB memory in use. Process 175356 has 77.26 GiB memory in use. Of the allocated memory 72.12 GiB is allocated by PyTorch, and 3.78 GiB is reserved by PyTorch but unallocated.".to_owned(),
            "fragmentation",
            Some("2.1"),
            Some(448 << 20),
        ),
        (
            "CUDA out of memory. Tried to allocate 3.78 GiB. GPU \u{1} has a total capacity of 23.69 GiB of which 875.62 MiB is free. Process 492814 has 3.21 GiB memory in use. Including non-PyTorch memory, this process has 19.40 GiB memory in use. Of the allocated memory 17.97 GiB is allocated by PyTorch, and 1.02 GiB is reserved by PyTorch but unallocated.".to_owned(),
            "non-pytorch",
            Some("2.3"),
            Some(4_058_744_095),
        ),
        (
            "HIP out of memory. Tried to allocate 704.00 GiB. GPU 0 has a total capacity of 191.69 GiB of which 186.02 GiB is free. Of the allocated memory 4.89 GiB is allocated by PyTorch, and 2.25 MiB is reserved by PyTorch but unallocated.".to_owned(),
            "capacity",
            Some("2.1+"),
            Some(704 << 30),
        ),
        (
            "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 192.00 MiB. GPU 3 has a total capacity of 31.89 GiB of which 13.22 GiB is free. Of the allocated memory 18.00 GiB is allocated by PyTorch, and 64.00 MiB is reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.".to_owned(),
            "memory-limit",
            None,
            Some(192 << 20),
        ),
        (
            "RuntimeError: MPS backend out of memory (MPS allocated: 17.71 GB, other allocations: 17.13 GB, max allowed: 36.27 GB). Tried to allocate 2.00 GB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).".to_owned(),
            "memory-limit",
            None,
            Some(2 << 30),
        ),
        (
            "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 15.80 GiB\nRequested               : 512.00 MiB\nDevice limit            : 15.99 GiB\nFree (according to CUDA): 0 bytes\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB\n".to_owned(),
            "capacity",
            Some("2.0+"),
            Some(512 << 20),
        ),
        ("RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.".to_owned(), "unknown", None, None),
    ] {
        let found = only(&text);
        assert_eq!(found.verdict.word(), verdict, "{text}\n{}", found.verdict_reason);
        assert_eq!(found.torch_version.as_deref(), version, "{text}");
        assert_eq!(found.requested_bytes, requested, "{text}");
        assert_eq!(found.kind, "allocator");
    }
}

#[test]
fn memory_of_others_is_distinguished_from_pytorchs() {
    for (text, kind) in [
        ("RuntimeError: CUDA error: out of memory", "cuda-runtime"),
        ("RuntimeError: cuda runtime error (2) : out of memory at THCStorage.cu:58", "cuda-runtime"),
        ("RuntimeError: CUDA driver error: out of memory", "cuda-driver"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "library"),
        ("ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'", "nccl"),
        (
            "[enforce fail at alloc_cpu.cpp:114] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes. Error code 12",
            "host",
        ),
    ] {
        let found = only(text);
        assert_eq!((found.kind, found.verdict.word()), (kind, "unknown"), "{text}");
        assert!(!found.advice.is_empty());
    }
    let host = only("DefaultCPUAllocator: not enough memory: you tried to allocate 4294967296 bytes.");
    assert_eq!(host.requested_bytes, Some(4 << 30));
    assert!(host.verdict_reason.contains("not GPU memory"));
    assert_eq!(report(b"DefaultCPUAllocator: not enough memory").unwrap().next_command, None);
}

#[test]
fn a_setting_is_advised_only_where_it_can_help() {
    let none_left = only(&worded("2.00 GiB", "8.00 GiB", "1.00 GiB", "", "6.50 GiB", "0 bytes"));
    assert_eq!((none_left.verdict.word(), none_left.settings_can_help), ("capacity", Some(false)));
    let advice = none_left.advice.join(" ");
    assert!(advice.contains("No allocator setting helps"), "{advice}");
    assert!(!advice.contains("Try PYTORCH_CUDA_ALLOC_CONF"), "{advice}");
    let too_little = only(&worded("2.00 GiB", "8.00 GiB", "1.00 GiB", "", "6.20 GiB", "300.00 MiB"));
    assert_eq!((too_little.verdict.word(), too_little.settings_can_help), ("capacity", Some(false)));
    let enough = only(&worded("2.00 GiB", "8.00 GiB", "1.00 GiB", "", "5.00 GiB", "1.50 GiB"));
    assert_eq!((enough.verdict.word(), enough.settings_can_help), ("fragmentation", Some(true)));
    // More than 1 MiB and less than 10 MiB was asked for: what is free may suffice for that.
    for (free, left, is_certain) in [("12.00 MiB", "0 bytes", true), ("0 bytes", "12.00 MiB", false)] {
        let cut = only(&worded("20.00 MiB", "200.00 MiB", free, "", "188.00 MiB", left));
        assert_eq!((cut.verdict.word(), cut.settings_can_help), ("capacity", Some(true)), "{free}");
        assert_eq!(cut.confidence.word() == "certain", is_certain, "{free}");
        assert!(!cut.advice.join(" ").contains("No allocator setting"), "{:?}", cut.advice);
    }
    let on = worded("2.00 GiB", "8.00 GiB", "1.00 GiB", "", "5.00 GiB", "1.50 GiB")
        .replace("If reserved but", "expandable_segments is enabled. If reserved but");
    let on = only(&on).advice.join(" ");
    assert!(on.contains("already on") && !on.contains("Try PYTORCH"), "{on}");
}

#[test]
fn expandable_segments_grow_by_whole_granules() {
    let said = |requested: &str, free: &str| {
        let on = worded(requested, "1000.00 MiB", free, "", "690.00 MiB", "0 bytes");
        only(&on.replace("If reserved but", "expandable_segments is enabled. If reserved but"))
    };
    let refused = said("300.00 MiB", "310.00 MiB");
    assert_eq!(refused.verdict.word(), "memory-limit", "{}", refused.verdict_reason);
    let cut = said("310.00 MiB", "310.00 MiB");
    assert_eq!((cut.verdict.word(), cut.settings_can_help), ("capacity", Some(true)));
    assert!(cut.verdict_reason.contains("320 MiB (whole granules"), "{}", cut.verdict_reason);
}

#[test]
fn a_private_pool_leaves_open_whether_something_helps() {
    let pools = worded("300.00 MiB", "1000.00 MiB", "200.00 MiB", "", "800.00 MiB", "0 bytes")
        .replace("by PyTorch, and", "by PyTorch, with 720.00 MiB allocated in private pools (e.g., CUDA Graphs), and");
    let pools = only(&pools);
    assert_eq!((pools.verdict.word(), pools.settings_can_help), ("private-pool", None));
}

#[test]
fn up_to_1_gib_outside_pytorch_is_a_context() {
    let others = only(&worded("150.00 MiB", "4.00 GiB", "100.00 MiB", "", "1.00 GiB", "0 bytes"));
    assert_eq!((others.verdict.word(), others.confidence.word()), ("non-pytorch", "possible"));
    // A context takes up to 1 GiB of any device.
    for held in ["0 bytes", "800.00 MiB"] {
        let context = only(&worded("150.00 MiB", "1000.00 MiB", "100.00 MiB", "", held, "0 bytes"));
        assert_eq!(context.verdict.word(), "capacity", "{held}");
    }
}

#[test]
fn limits_and_processes_are_weighed() {
    let middle = "6.80 GiB allowed; ";
    let both = only(&worded("1.60 GiB", "8.00 GiB", "453.00 MiB", middle, "6.41 GiB", "0 bytes"));
    assert_eq!(both.verdict.word(), "capacity", "raising the limit alone would not help");
    assert!(both.advice.iter().any(|advice| advice.contains("6.80 GiB")), "{:?}", both.advice);
    let middle = "50.00 GiB allowed; ";
    let tenants = only(&worded("2.00 GiB", "191.69 GiB", "0 bytes", middle, "9.58 GiB", "0 bytes"));
    assert_eq!(tenants.verdict.word(), "non-pytorch", "the limit is far");
    let middle = "Process 77 has 60.00 GiB memory in use. Including non-PyTorch memory, this process has 19.00 GiB memory in use. ";
    let named = only(&worded("2.00 GiB", "80.00 GiB", "1.00 GiB", middle, "18.20 GiB", "100.00 MiB"));
    assert_eq!((named.verdict.word(), named.confidence.word()), ("non-pytorch", "certain"));
    assert!(named.advice[0].contains("Process 77 uses 60 GiB"), "{:?}", named.advice);
    // The process' own context does not make it somebody else's fault.
    let middle = "Including non-PyTorch memory, this process has 31.28 GiB memory in use. ";
    let own = only(&worded("320.00 MiB", "31.37 GiB", "80.69 MiB", middle, "30.76 GiB", "33.46 MiB"));
    assert_eq!(own.verdict.word(), "capacity");
    // Inside a container this process is listed by a number that it does not know.
    let middle = "Process 3131906 has 139.80 GiB memory in use. ";
    let inside = only(&worded("344.00 MiB", "139.81 GiB", "2.00 MiB", middle, "138.60 GiB", "4.56 MiB"));
    assert_eq!(inside.verdict.word(), "capacity");
    let meaning = &inside.figures.iter().find(|f| f.name == "process").unwrap().meaning;
    assert!(meaning.contains("probably this one"), "{meaning}");
    // Windows prints 2^64 for what it does not know.
    let middle = "Process 9 has 17179869184.00 GiB memory in use. 2.63 GiB allowed; ";
    let unknown = only(&worded("2.13 GiB", "8.00 GiB", "6.10 GiB", middle, "954.00 MiB", "0 bytes"));
    assert_eq!(unknown.verdict.word(), "memory-limit");
    let pool = worded("2.00 GiB", "8.00 GiB", "6.10 GiB", "", "954.00 MiB", "0 bytes")
        .replace("If reserved but", "The custom allocator backing this MemPool returned nullptr. If");
    assert!(only(&pool).verdict_reason.contains("MemPool"));
}

#[test]
fn a_verdict_that_rounding_decides_is_left_open() {
    let close = only(&worded("2.00 GiB", "80.00 GiB", "2.00 GiB", "", "70.00 GiB", "0 bytes"));
    assert!(close.within_rounding, "2.00 GiB may be less than 2.00 GiB");
    let close = only(&worded("2.00 GiB", "8.00 GiB", "1.00 GiB", "", "6.00 GiB", "1021.00 MiB"));
    assert_eq!((close.verdict.word(), close.within_rounding), ("capacity", true));
    assert_eq!(close.confidence.word(), "possible");
    let clear = only(&worded("2.00 GiB", "8.00 GiB", "1.00 GiB", "", "6.00 GiB", "900.00 MiB"));
    assert_eq!((clear.verdict.word(), clear.within_rounding), ("capacity", false));
}
