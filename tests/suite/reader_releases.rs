//! What each release and backend writes, leaves out or adds is taken as it is.

use crate::support::describe::{describe, read, stack, warnings};
use crate::support::pickle_bytes::{Py, dict};
use crate::support::{fixtures, sample};
use oomscope::snapshot::Action;

/// For each minor release of PyTorch 2, the range that its recordings show.
const RANGES: [(u32, &str); 15] = [
    (1, "2.1"),
    (2, "2.2"),
    (3, "2.3-2.4"),
    (4, "2.3-2.4"),
    (5, "2.5-2.7"),
    (6, "2.5-2.7"),
    (7, "2.5-2.7"),
    (8, "2.8"),
    (9, "2.9"),
    (10, "2.10-2.11"),
    (11, "2.10-2.11"),
    (12, "2.12"),
    (13, "2.13"),
    (14, "2.14+"),
    (15, "2.14+"),
];

#[test]
fn the_keys_show_the_release() {
    let mut seen = std::collections::BTreeSet::new();
    for name in fixtures::names() {
        let minor: u32 = name.split('.').nth(1).unwrap().parse().unwrap();
        let torch = &fixtures::study(&name).snapshot().torch_by_keys;
        assert!(torch.first.is_some_and(|first| first <= minor), "{name}: {torch}");
        assert!(torch.last.is_none_or(|last| minor <= last), "{name}: {torch}");
        let range = RANGES.iter().find(|(m, _)| *m == minor).unwrap().1;
        assert_eq!(torch.to_string(), range, "{name}");
        seen.insert(minor);
    }
    assert_eq!(seen.len(), RANGES.len(), "a release without a fixture");
}

#[test]
fn no_recording_gives_reason_for_a_warning() {
    for name in fixtures::names() {
        assert_eq!(warnings(fixtures::study(&name).snapshot()), "", "{name}");
    }
}

#[test]
fn legacy_blocks_get_addresses_sizes_and_stacks_from_their_history() {
    // Before 2.1: no address, no requested_size; the newest allocation comes first.
    let past = |size: u64, line: i32| {
        dict([
            ("addr", 0.into()),
            ("real_size", size.into()),
            ("frames", vec![sample::frame("/app/old.py", line, "f")].into()),
        ])
    };
    let block = |size: u64, state: &str, history: Vec<Py>| {
        dict([("size", size.into()), ("state", state.into()), ("history", history.into())])
    };
    let blocks = vec![
        block(1024, "active_allocated", vec![past(1000, 1), past(700, 2)]),
        block(512, "active_pending_free", vec![past(300, 3)]),
        block(4096, "inactive", vec![]).without("history"),
    ];
    let segment = dict([
        ("device", 0.into()),
        ("address", 65536.into()),
        ("total_size", (1024 + 512 + 4096).into()),
        ("allocated_size", 1024.into()),
        ("active_size", 1536.into()),
        ("stream", 0.into()),
        ("segment_type", "large".into()),
        ("blocks", blocks.into()),
    ]);
    let old = dict([("segments", vec![segment].into()), ("device_traces", vec![].into())]);
    let snapshot = read(&old.pickle(4));
    assert_eq!(
        describe(&snapshot),
        "\
written by 2.0
segment 0:0x10000+5632 stream 0 small false expandable false pool [0, 0] at []
  block 0x10000+1024 requested 1000 ActiveAllocated at [f@/app/old.py:1]
  block 0x10400+512 requested 300 ActivePendingFree at [f@/app/old.py:3]
  block 0x10600+4096 requested 4096 Inactive at []
host segments []
"
    );
    assert_eq!(warnings(&snapshot), "");
}

#[test]
fn a_block_that_has_both_forms_goes_by_its_own_requested_size() {
    // MUSA writes the history and the requested size.
    let past = dict([("addr", 0.into()), ("real_size", 77.into()), ("frames", vec![].into())]);
    let sample = sample::changed_block(|block| block.without("frames").with("history", Py::from(vec![past])));
    let snapshot = read(&sample.pickle(4));
    assert_eq!(snapshot.blocks[0].requested_size, (1 << 20) - 12);
    assert_eq!(warnings(&snapshot), "");
}

#[test]
fn cpp_frames_of_2_0_are_texts() {
    let frames: Py = vec!["at::empty()".into(), "main".into()].into();
    let sample = sample::changed_event(|event| event.without("frames").with("cpp_frames", frames.clone()));
    let snapshot = read(&sample.pickle(4));
    assert_eq!(stack(&snapshot, snapshot.entries.get(0).unwrap().stack), "[at::empty()@:0 < main@:0]");
    let sample = sample::changed_event(|event| event.with("cpp_frames", frames));
    let snapshot = read(&sample.pickle(4));
    assert!(stack(&snapshot, snapshot.entries.get(0).unwrap().stack).contains("model.py"));
}

#[test]
fn fields_that_a_release_lacks_are_absent() {
    let entry = dict([("action", "alloc".into()), ("addr", 4096.into()), ("size", 40.into())]);
    let old = dict([("segments", vec![].into()), ("device_traces", vec![vec![entry].into()].into())]);
    let event = read(&old.pickle(4)).entries.get(0).unwrap();
    assert_eq!(event.pool, None);
    assert_eq!((event.compile_context, event.user_metadata), (None, None));
    assert_eq!((event.time_us, event.stream, event.stack.0), (0, 0, 0));
}

#[test]
fn unknown_keys_and_actions_are_left_out_with_one_warning_each() {
    let mut events = sample::events(sample::ADDRESS);
    for event in &mut events {
        *event = event.clone().with("colour", "red");
    }
    events.push(sample::event("teleport", 1, 2, 3));
    events.push(sample::event("teleport", 1, 2, 4));
    let mut block = sample::two_blocks(sample::ADDRESS);
    block[0] = block[0].clone().with("shade", Py::List(vec![dict([("a", 1.into())])]));
    let segment = sample::segment(0, sample::ADDRESS, block).with("tint", Py::Float(0.5));
    let odd =
        sample::snapshot_of(vec![segment], vec![events.into()]).with("weather", dict([("action", "rain".into())]));
    let snapshot = read(&odd.pickle(4));
    assert_eq!(
        warnings(&snapshot),
        "\
unknown-action: trace entries with the unknown action 'teleport' were ignored
unknown-key: blocks have the unknown key 'shade', which was ignored
unknown-key: segments have the unknown key 'tint', which was ignored
unknown-key: the snapshot has the unknown key 'weather', which was ignored
unknown-key: trace entries have the unknown key 'colour', which was ignored
"
    );
    let rest =
        describe(&snapshot).lines().filter(|l| !l.contains("Other")).fold(String::new(), |all, line| all + line + "\n");
    let plain = describe(&read(&sample::snapshot().pickle(4)));
    assert_eq!(rest.replace("0: 7 entries", "0: 5 entries"), plain);
}

#[test]
fn known_actions_that_move_no_memory_give_no_warning() {
    for action in ["annotate", "user_defined", "workspace_snapshot"] {
        let sample = sample::changed_event(|event| event.with("action", action));
        let snapshot = read(&sample.pickle(4));
        assert_eq!(snapshot.entries.get(0).unwrap().action, Action::Other);
        assert_eq!(warnings(&snapshot), "", "{action}");
    }
}

#[test]
fn the_keys_of_a_record_may_come_in_any_order() {
    let expected = describe(&read(&sample::snapshot().pickle(4)));
    fn reversed(value: &Py) -> Py {
        match value {
            Py::Dict(pairs) => Py::Dict(pairs.iter().rev().map(|(k, v)| (k.clone(), reversed(v))).collect()),
            Py::List(items) => Py::List(items.iter().map(reversed).collect()),
            other => other.clone(),
        }
    }
    let sample = reversed(&sample::snapshot());
    assert_eq!(describe(&read(&sample.pickle(4))), expected);
    assert_eq!(describe(&read(sample.json().as_bytes())), expected);
}

#[test]
fn records_of_other_backends_may_hold_none_for_numbers() {
    // profile_plot writes addr None; NPU traces carry no stream for some actions.
    let sample = sample::changed_event(|e| e.with("addr", Py::None).with("stream", Py::None));
    let event = read(&sample.pickle(4)).entries.get(0).unwrap();
    assert_eq!((event.addr, event.stream), (0, 0));
}

#[test]
fn blocks_that_do_not_fill_their_segment_are_named() {
    let sample = sample::changed_segment(|segment| segment.with("total_size", 3 << 20));
    assert_eq!(
        warnings(&read(&sample.pickle(4))),
        "segment-sum: the blocks of segment 0x7f0000000000 add up to 2097152 bytes, but its total_size is 3145728\n"
    );
}

#[test]
fn frames_may_carry_fx_keys_and_none() {
    let frame =
        sample::frame("/app/a.py", 3, "g").with("fx_node_op", "call_function").with("fx_original_trace", "x\ny");
    let odd = dict([("name", Py::None), ("filename", Py::None), ("line", Py::None)]);
    let frames: Py = vec![frame, odd].into();
    let snapshot = read(&sample::changed_event(|e| e.with("frames", frames)).pickle(4));
    assert_eq!(stack(&snapshot, snapshot.entries.get(0).unwrap().stack), "[g@/app/a.py:3 < @:0]");
    assert_eq!(warnings(&snapshot), "");
}
