//! A snapshot that we write says what it was made of, to us and to CPython, and is shared as PyTorch
//! shares it. What CPython loads from it and dumps again are the same bytes.
//! Slow: every recording is written and replayed.

use crate::support::{describe, fixtures, peak_heap};

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::support::python::{has_python, python};
use oomscope::allocator::releases::{NEWEST, OLDEST};
use oomscope::allocator::{AllocatorEntry, BlockView, DeviceRange, SegmentView};
use oomscope::base::ids::{PoolId, StackId};
use oomscope::replay::literal::{candidate_releases, recorded_settings};
use oomscope::replay::model::{EmittedDevice, emit};
use oomscope::snapshot::{Action, BlockState, Snapshot, TorchRange, TraceEntry};
use oomscope::study::{Scope, Study};
use oomscope::whatif::{Overrides, verify_study, write_snapshot};

/// What the allocator of one device did and holds.
struct Device {
    number: u64,
    entries: Vec<(AllocatorEntry, u64)>,
    segments: Vec<SegmentView>,
    blocks: Vec<BlockView>,
}

fn entry_of(event: &TraceEntry) -> (AllocatorEntry, u64) {
    let TraceEntry { action, addr, size, stream, stack, .. } = *event;
    let pool = event.pool.unwrap_or_default();
    (AllocatorEntry { action, addr, size, stream, pool, context: stack }, event.time_us)
}

fn entries_of(snapshot: &Snapshot, device: u64) -> Vec<(AllocatorEntry, u64)> {
    snapshot.device(device).entries().map(|entry| entry_of(&entry)).collect()
}

/// The devices as they were recorded.
fn recorded(snapshot: &Snapshot) -> Vec<Device> {
    let on = |number: u64| {
        let segments = snapshot.device(number).segments().map(|s| SegmentView {
            range: s.into(),
            context: s.stack,
            blocks: s.blocks.clone(),
        });
        segments.collect()
    };
    let blocks = snapshot.blocks.iter().map(|b| BlockView { context: b.stack, ..b.into() });
    let blocks: Vec<BlockView> = blocks.collect();
    (0..snapshot.traces.len() as u64)
        .map(|number| Device {
            number,
            entries: entries_of(snapshot, number),
            segments: on(number),
            blocks: blocks.clone(),
        })
        .collect()
}

/// The newest release that may have written it.
fn minor_of(snapshot: &Snapshot) -> u32 {
    *candidate_releases(&snapshot.torch).end()
}

fn emitted(snapshot: &Snapshot, devices: &[Device]) -> Vec<u8> {
    let devices: Vec<EmittedDevice<'_>> = devices
        .iter()
        .map(|device| EmittedDevice {
            device: device.number,
            entries: (&device.entries[..]).into(),
            texts: Vec::new(),
            segments: device.segments.clone(),
            blocks: device.blocks.clone(),
        })
        .collect();
    let mut bytes = Vec::new();
    emit(snapshot, minor_of(snapshot), None, &devices, &mut bytes).unwrap();
    bytes
}

/// All that is to be carried over, as text.
fn content(snapshot: &Snapshot) -> String {
    let mut segments: Vec<_> = snapshot.segments.iter().collect();
    segments.sort_by_key(|segment| (segment.device, segment.address));
    let mut out: String = segments.into_iter().map(|segment| describe::segment(snapshot, segment)).collect();
    for number in 0..snapshot.traces.len() as u64 {
        let _ = writeln!(out, "trace");
        for event in snapshot.device(number).entries() {
            if event.action != Action::Other {
                let pool = Some(event.pool.unwrap_or_default());
                let event = TraceEntry { compile_context: None, user_metadata: None, pool, ..event };
                let _ = writeln!(out, "  {}", describe::describe_event(snapshot, event));
            }
        }
    }
    out.extend(snapshot.annotations.iter().map(|annotation| describe::annotation(snapshot, annotation)));
    out
}

fn check_content(name: &str, recording: &Snapshot, copy: &Snapshot) {
    let (expected, found) = (content(recording), content(copy));
    for (number, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        assert_eq!(found, expected, "{name}: line {number}");
    }
    assert_eq!(found.len(), expected.len(), "{name}");
}

#[test]
fn every_recording_reads_back_as_it_was_written() {
    for name in fixtures::names() {
        let recording = fixtures::study(&name).snapshot();
        let copy = describe::read(&emitted(recording, &recorded(recording)));
        check_content(&name, recording, &copy);
        if recording.settings.is_some() {
            assert_eq!(copy.settings, recording.settings, "{name}");
        }
        assert_eq!(recorded_settings(&copy), recorded_settings(recording), "{name}");
        assert_eq!(describe::warnings(&copy), "", "{name}");
    }
}

#[test]
fn an_emitted_file_has_the_same_release_and_verification() {
    let facts = |study: &Study<'_>| {
        let report = verify_study(study, "");
        let device = |d: &oomscope::whatif::ReplayedDevice| (d.exact, d.end_state_exact, d.start);
        (report.torch_version, report.devices.iter().map(device).collect::<Vec<_>>())
    };
    let mut exact = 0;
    for name in fixtures::names() {
        let study = fixtures::study(&name);
        let recording = study.snapshot();
        let devices = oomscope::whatif::run_model(study);
        let mut bytes = Vec::new();
        write_snapshot(study, &Overrides::default(), &devices, &mut bytes).unwrap();
        let copy = describe::read(&bytes);
        assert_eq!(copy.torch_by_keys, recording.torch_by_keys, "{name}");
        assert_eq!(copy.torch, recording.torch, "{name}");
        let (torch_version, replayed) = facts(study);
        assert_eq!(facts(&Study::new(&copy, Scope::default())), (torch_version, replayed.clone()), "{name}");
        if replayed.iter().all(|device| *device == (Some(true), Some(true), "empty")) {
            exact += 1;
            let memory = |of: &Snapshot| content(of).split("trace\n").next().unwrap().to_owned();
            assert_eq!(memory(&copy), memory(recording), "{name}");
        }
        // A what-if under another release writes that one's keys.
        for minor in [OLDEST, NEWEST] {
            let overrides = Overrides { minor: Some(minor), ..Overrides::default() };
            let mut bytes = Vec::new();
            write_snapshot(study, &overrides, &devices, &mut bytes).unwrap();
            let copy = describe::read(&bytes);
            assert!(candidate_releases(&copy.torch_by_keys).contains(&minor), "{name}: 2.{minor}");
        }
    }
    assert!(exact >= 20, "only {exact} recordings were reproduced");
}

#[test]
fn fields_that_no_recording_has_are_written() {
    let entry = |action, stream| AllocatorEntry {
        action,
        addr: u64::MAX,
        size: 1 << 63,
        stream,
        pool: PoolId::default(),
        context: StackId::default(),
    };
    let entries = [
        (entry(Action::Other, 0), 0),
        (entry(Action::Alloc, u64::MAX), 0),
        (entry(Action::Other, 0), 0),
        (entry(Action::Oom, 0), 0),
    ];
    let segment = SegmentView {
        range: DeviceRange {
            addr: 512,
            size: 1024,
            stream: 1 << 63,
            pool: PoolId::default(),
            is_small: true,
            is_expandable: false,
        },
        context: StackId::default(),
        blocks: 0..1,
    };
    let block =
        BlockView { addr: 512, size: 1024, requested: 1000, state: BlockState::ActivePendingFree, context: StackId(7) };
    let devices = [
        Device { number: 2, entries: entries.into(), segments: Vec::new(), blocks: Vec::new() },
        Device { number: 9, entries: Vec::new(), segments: vec![segment], blocks: vec![block] },
    ];
    let newest = TorchRange { first: Some(NEWEST), last: None };
    let nothing = Snapshot { torch: newest, ..Snapshot::default() };
    let copy = describe::read(&emitted(&nothing, &devices));
    assert_eq!(copy.traces, [0..0, 0..0, 0..2]);
    let events: Vec<TraceEntry> = (0..2).map(|row| copy.entries.get(row).unwrap()).collect();
    assert_eq!(entry_of(&events[0]), entries[1]);
    assert_eq!(entry_of(&events[1]), entries[3]);
    assert_eq!((copy.segments[0].device, copy.segments[0].stream), (9, 1 << 63));
    assert_eq!(copy.blocks[0].state, BlockState::ActivePendingFree);
    assert_eq!(copy.settings.clone().unwrap().string, "");
    assert_eq!(recorded_settings(&copy), recorded_settings(&Snapshot::default()));

    let empty = describe::read(&emitted(&nothing, &[]));
    assert!(empty.traces.is_empty() && empty.segments.is_empty() && empty.entries.is_empty());
}

/// Takes a number of bytes and no more.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_wherever_it_is_noticed() {
    let recording = describe::read(&fixtures::pickle("2.15.0-holes"));
    let devices = recorded(&recording);
    let device = EmittedDevice {
        device: 0,
        entries: (&devices[0].entries[..]).into(),
        texts: Vec::new(),
        segments: devices[0].segments.clone(),
        blocks: devices[0].blocks.clone(),
    };
    let device = std::slice::from_ref(&device);
    let length = emitted(&recording, &devices).len();
    for room in [0, 1, 2, 11, length / 2, length - 1] {
        let error = emit(&recording, NEWEST, None, device, &mut Full(room)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "room for {room} bytes");
    }
    emit(&recording, NEWEST, None, device, &mut Full(length)).unwrap();
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let recording = describe::read(&fixtures::pickle("2.15.0-conv_train"));
    let once = entries_of(&recording, 0);
    let peak = |times: usize| {
        let entries = once.repeat(times);
        let entries = (&entries[..]).into();
        let device = EmittedDevice { device: 0, entries, texts: Vec::new(), segments: Vec::new(), blocks: Vec::new() };
        let write = || emit(&recording, NEWEST, None, std::slice::from_ref(&device), &mut io::sink());
        let (written, peak) = peak_heap::peak_of(write);
        written.unwrap();
        peak
    };
    assert!(once.len() > 500, "only {} entries", once.len());
    assert_eq!(peak(100), peak(10));
}

// CPython

/// Holds each emitted file against its recording, as far as the model knows what that says.
const LIKE_THE_RECORDING: &str = r#"
import glob, gzip, os, pickle, sys

KNOWN = ("action", "addr", "device_free", "size", "stream", "time_us", "compile_context", "user_metadata", "pool_id",
    "frames")

def entries(trace):
    for entry in trace:
        if entry["action"] != "annotate":
            entry = {key: entry[key] for key in KNOWN if key in entry}
            yield dict({"frames": []}, **entry)

def same(name, found, expected):
    if found == expected:
        return
    if isinstance(found, list) and len(found) == len(expected):
        for place, pair in enumerate(zip(found, expected)):
            same(f"{name}[{place}]", *pair)
    sys.exit(f"{name}:\n{found!r:.2000}\ninstead of\n{expected!r:.2000}")

def lists(snapshot):
    for segment in snapshot["segments"]:
        yield segment["frames"]
        for block in segment["blocks"]:
            yield block["frames"]
    for trace in snapshot["device_traces"]:
        for entry in trace:
            yield entry["frames"]

SEGMENT = ["device", "address", "total_size", "allocated_size", "active_size", "requested_size",
    "stream", "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"]
BLOCK = ["address", "size", "requested_size", "state", "frames"]

paths = sorted(glob.glob("*.pickle"))
for path in paths:
    with gzip.open(os.path.join(sys.argv[1], path + ".gz")) as file:
        recording = pickle.load(file)
    with open(path, "rb") as file:
        bytes = file.read()
    emitted = pickle.loads(bytes)
    assert list(emitted) == list(recording), path
    assert all(list(segment) == SEGMENT for segment in emitted["segments"]), path
    assert all(list(b) == BLOCK for s in emitted["segments"] for b in s["blocks"]), path
    order = lambda segment: (segment["device"], segment["address"])
    same(path, sorted(emitted["segments"], key=order), sorted(recording["segments"], key=order))
    traces = recording["device_traces"]
    assert len(emitted["device_traces"]) == len(traces), path
    for trace, recorded in zip(emitted["device_traces"], traces):
        same(path, trace, list(entries(recorded)))
        for entry, original in zip(trace, entries(recorded)):
            assert [key for key in KNOWN if key in original] == list(entry), path
    if "allocator_settings" in recording:
        same(path, emitted["allocator_settings"], recording["allocator_settings"])
    same(path, emitted.get("external_annotations"), recording.get("external_annotations"))
    # One dict a frame, one list a stack.
    stacks = {id(frames): frames for frames in lists(emitted)}.values()
    assert len(stacks) == len({tuple(map(id, frames)) for frames in stacks}), path
    frames = {id(frame): frame for frames in stacks for frame in frames}.values()
    assert len(frames) == len({tuple(frame.items()) for frame in frames}), path
    assert all(list(frame) == ["name", "filename", "line"] for frame in frames), path
    if pickle.dumps(emitted, protocol=4) != bytes:
        sys.exit(f"{path}: CPython writes it otherwise")
print(len(paths))
"#;

#[test]
#[ignore = "slow: .ci/release runs it"]
fn cpython_loads_what_was_recorded_and_would_write_the_same_bytes() {
    if !has_python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let names = fixtures::names();
    for name in &names {
        let recording = fixtures::study(name).snapshot();
        let bytes = emitted(recording, &recorded(recording));
        std::fs::write(directory.path().join(format!("{name}.pickle")), bytes).unwrap();
    }
    assert_eq!(python(LIKE_THE_RECORDING, directory.path()), names.len().to_string());
}
