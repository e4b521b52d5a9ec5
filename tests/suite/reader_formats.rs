//! Every form in which snapshots come: JSON, bare lists, all protocols, PyTorch's own C++ pickler,
//! old releases, other backends, compressed files.

use crate::support::describe::{describe, read, stack, warnings};
use crate::support::pickle_bytes::{Py, Script, dict};
use crate::support::pickle_tree::Tree;
use crate::support::{fixtures, plain_json, sample};
use oomscope::snapshot::{Action, BlockState, Device};
use serde_json::{Value, json};

#[test]
fn the_sample_is_read_whole() {
    let snapshot = read(&sample::snapshot().pickle(4));
    assert_eq!(
        describe(&snapshot),
        "\
written by 2.14+
segment 0:0x7f0000000000+2097152 stream 0 small true expandable false pool [0, 0] at [forward@/app/model.py:10 < <module>@/app/train.py:99]
  block 0x7f0000000000+1048576 requested 1048564 ActiveAllocated at [forward@/app/model.py:10 < <module>@/app/train.py:99]
  block 0x7f0000100000+1048576 requested 1048564 Inactive at []
trace of device 0: 5 entries
  SegmentAlloc 0x7f0000000000+2097152 stream 0 time 1795241347396516 pool Some([0, 0]) context Some(\"N/A\") metadata Some(\"\") at [forward@/app/model.py:10 < <module>@/app/train.py:99]
  Alloc 0x7f0000000000+1048564 stream 0 time 1795241347396517 pool Some([0, 0]) context Some(\"N/A\") metadata Some(\"\") at [forward@/app/model.py:10 < <module>@/app/train.py:99]
  Alloc 0x7f0000100000+500 stream 0 time 1795241347396518 pool Some([0, 0]) context Some(\"N/A\") metadata Some(\"\") at [forward@/app/model.py:10 < <module>@/app/train.py:99]
  FreeRequested 0x7f0000100000+500 stream 0 time 1795241347396519 pool Some([0, 0]) context Some(\"N/A\") metadata Some(\"\") at [forward@/app/model.py:10 < <module>@/app/train.py:99]
  FreeCompleted 0x7f0000100000+500 stream 0 time 1795241347396519 pool Some([0, 0]) context Some(\"N/A\") metadata Some(\"\") at [forward@/app/model.py:10 < <module>@/app/train.py:99]
settings 'max_split_size_mb:64' {\"expandable_segments\":false,\"garbage_collection_threshold\":0.5,\"graph_capture_record_stream_reuse\":false,\"max_round_threshold\":-1,\"max_split_size\":67108864,\"roundup_power2_divisions\":{\"1\":0,\"2\":4}}
annotation Optimizer.step#AdamW.step start true device 0 time 1795241347396517
annotation Optimizer.step#AdamW.step start false device 0 time 1795241347396519
host segments [8192]
"
    );
    assert_eq!(warnings(&snapshot), "");
}

#[test]
fn every_protocol_and_json_say_the_same() {
    let sample = sample::snapshot();
    let expected = describe(&read(&sample.pickle(2)));
    for protocol in 3..=5 {
        assert_eq!(describe(&read(&sample.pickle(protocol))), expected, "protocol {protocol}");
    }
    assert_eq!(describe(&read(sample.json().as_bytes())), expected, "JSON");
    let indented = format!("\n  {}\n", sample.json().replace(", ", ",\n\t"));
    assert_eq!(describe(&read(indented.as_bytes())), expected, "JSON with white space");
}

#[test]
fn a_json_dump_gives_the_same_snapshot_as_the_pickle() {
    for name in [
        "2.1.2-holes-at-oom",
        "2.3.1-streams-expandable-lag",
        "2.5.1-graphs",
        "2.15.0-two_devices",
        "2.15.0-mempool-expandable",
        "2.15.0-holes-at-oom",
        "2.15.0-gpt_varlen-no-history",
        "2.15.0-cpp_pickler-streams",
        "2.5.1-gpt_varlen-oom",
    ] {
        let pickle = fixtures::pickle(name);
        let dump = plain_json::recording(name).to_string();
        let (from_pickle, from_json) = (read(&pickle), read(dump.as_bytes()));
        assert_eq!(describe(&from_json), describe(&from_pickle), "{name}");
        assert_eq!(warnings(&from_json), "", "{name}");
    }
}

#[test]
fn the_bare_list_of_segments_is_a_snapshot() {
    let segments = vec![
        sample::segment(0, sample::ADDRESS, sample::two_blocks(sample::ADDRESS)),
        sample::segment(1, sample::ADDRESS, sample::two_blocks(sample::ADDRESS)),
    ];
    let bare = Py::from(segments);
    for bytes in [bare.pickle(4), bare.json().into_bytes(), bare.tagged_pickle()] {
        let snapshot = read(&bytes);
        assert_eq!(snapshot.segments.len(), 2);
        assert_eq!(snapshot.segments[1].device, 1);
        assert_eq!(snapshot.segments[1].blocks, 2..4);
        assert!(snapshot.entries.is_empty() && snapshot.traces.is_empty());
        assert!(snapshot.settings.is_none());
        assert_eq!(snapshot.torch.to_string(), "2.1+", "segments alone tell no more");
        assert_eq!(warnings(&snapshot), "");
    }
    for bytes in [b"\x80\x04].".to_vec(), b"[]".to_vec()] {
        assert!(read(&bytes).segments.is_empty(), "nothing allocated");
    }
}

#[test]
fn handles_of_63_bits_and_more_keep_their_bits() {
    // XPU writes stream handles as unsigned 64-bit numbers: LONG1 of nine bytes.
    for (stream, bits) in [
        (1i128 << 63, 1u64 << 63),
        (u64::MAX.into(), u64::MAX),
        (i64::MAX.into(), i64::MAX as u64),
        ((1 << 59) - 1, (1 << 59) - 1),
        (1 << 59, 1 << 59),
        (-1, u64::MAX),
        (-(1 << 59) - 1, 0xf7ff_ffff_ffff_ffff),
    ] {
        let mut sample = sample::changed_event(|event| event.with("stream", stream));
        if let Py::List(segments) = sample.at("segments") {
            segments[0] = segments[0].clone().with("stream", stream);
        }
        let pickle = sample.pickle(4);
        if stream >= 1 << 63 {
            assert!(pickle.windows(2).any(|w| w == [0x8a, 9]), "LONG1 of nine bytes");
        }
        for bytes in [pickle, sample.json().into_bytes()] {
            let snapshot = read(&bytes);
            assert_eq!(snapshot.segments[0].stream, bits, "{stream}");
            assert_eq!(snapshot.entries.get(0).unwrap().stream, bits, "{stream}");
            assert_eq!(snapshot.entries.get(1).unwrap().stream, 0);
        }
    }
}

#[test]
fn containers_tagged_by_the_old_cpp_pickler_are_what_they_wrap() {
    let sample = sample::snapshot();
    let tagged = sample.tagged_pickle();
    assert!(tagged.windows(16).any(|w| w == b"restore_type_tag"));
    assert_eq!(describe(&read(&tagged)), describe(&read(&sample.pickle(2))));
    assert_eq!(
        Tree::read(&tagged).unwrap().to_json(usize::MAX),
        Tree::read(&sample.pickle(2)).unwrap().to_json(usize::MAX)
    );
}

#[test]
fn a_tagged_container_can_be_shared_by_its_memo_slot() {
    // [x, x] where x is tagged, put into the memo after its content and after the REDUCE.
    let pickle = Script::default()
        .raw(b"\x80\x02](ctorch.jit._pickle\nrestore_type_tag\nq\0](K\x01K\x02eq\x01")
        .text("List[int]")
        .raw(b"\x86Rq\x02h\x02h\x01h\0](K\x03e")
        .text("List[int]")
        .raw(b"\x86Re")
        .stop();
    let tree = Tree::read(&pickle).unwrap().to_json(1000).unwrap();
    assert_eq!(tree, "[[1,2],[1,2],[1,2],[3]]");
}

#[test]
fn the_cpp_pickler_of_real_releases_agrees_with_python() {
    // The workload `streams` with the same seed: same addresses, sizes, streams; only the script
    // that called it and the clock differ.
    let comparable = |name: &str| {
        let snapshot = read(&fixtures::pickle(name));
        assert_eq!(warnings(&snapshot), "", "{name}");
        let innermost = |id| {
            let frames = stack(&snapshot, id);
            let first = frames.split(" < ").next().unwrap();
            if first.contains("/app/workloads.py") { first.to_owned() } else { "-".to_owned() }
        };
        let mut lines = Vec::new();
        for e in snapshot.device(0).entries() {
            let at = innermost(e.stack);
            lines.push(format!("{:?} {:x}+{} {} {at}", e.action, e.addr, e.size, e.stream));
        }
        for s in &snapshot.segments {
            let at = innermost(s.stack);
            lines.push(format!("{:x}+{} {} {} {at}", s.address, s.total_size, s.stream, s.is_small));
            for b in &snapshot.blocks[s.blocks.clone()] {
                let at = innermost(b.stack);
                lines.push(format!("  {:x}+{} {} {:?} {at}", b.address, b.size, b.requested_size, b.state));
            }
        }
        let in_workload = lines.iter().filter(|line| line.contains("/app/workloads.py")).count();
        assert!(in_workload > 700, "{name}: {in_workload}");
        assert_eq!(snapshot.device(0).len(), 916, "{name}");
        assert_eq!(snapshot.segments.len(), 33, "{name}");
        lines
    };
    let python = comparable("2.15.0-streams");
    for name in ["2.15.0-cpp_pickler-streams", "2.1.2-cpp_pickler-streams"] {
        let cpp = comparable(name);
        for (cpp, python) in cpp.iter().zip(&python) {
            assert_eq!(cpp, python, "{name}");
        }
        assert_eq!(cpp.len(), python.len(), "{name}");
    }
}

#[test]
fn two_devices_may_use_the_same_addresses() {
    let at = sample::ADDRESS;
    let sample = sample::snapshot_of(
        vec![sample::segment(0, at, sample::two_blocks(at)), sample::segment(1, at, sample::two_blocks(at))],
        vec![sample::events(at).into(), sample::events(at)[..3].to_vec().into()],
    );
    let snapshot = read(&sample.pickle(4));
    let devices: Vec<_> = snapshot.segments.iter().map(|s| (s.device, s.address)).collect();
    assert_eq!(devices, [(0, at), (1, at)]);
    assert_eq!([0, 1].map(|id| snapshot.device(id).len()), [5, 3]);
    assert_eq!(snapshot.device(1).entry(0).action, Action::SegmentAlloc);
}

#[test]
fn devices_without_entries_keep_their_numbers() {
    let empty = || Py::List(vec![]);
    let sample = sample::snapshot_of(vec![], vec![empty(), empty(), sample::events(sample::ADDRESS).into(), empty()]);
    let snapshot = read(&sample.pickle(4));
    assert_eq!([0, 1, 2, 3, 4].map(|id| snapshot.device(id).len()), [0, 0, 5, 0, 0]);
    assert_eq!(snapshot.devices().map(Device::id).collect::<Vec<_>>(), [2]);
    assert_eq!(snapshot.traces.len(), 4);

    let none = sample::snapshot_of(vec![], vec![empty(), empty()]);
    assert!(read(&none.pickle(4)).entries.is_empty());
}

#[test]
fn an_oom_entry_has_free_bytes_in_place_of_an_address() {
    let oom = sample::event("oom", 0, 5 << 20, sample::TIME).without("addr").with("device_free", 12_345);
    for reversed in [false, true] {
        let mut oom = oom.clone();
        if reversed {
            oom.pairs().reverse();
        }
        let snapshot = read(&sample::changed_event(|_| oom).pickle(4));
        let event = snapshot.entries.get(0).unwrap();
        assert_eq!((event.action, event.addr, event.size), (Action::Oom, 12_345, 5 << 20));
    }
}

#[test]
fn entries_without_times_say_that_they_have_none() {
    let events: Vec<Py> = sample::events(sample::ADDRESS).into_iter().map(|e| e.without("time_us")).collect();
    let mut sample = sample::snapshot_of(vec![], vec![events.into()]);
    let snapshot = read(&sample.pickle(4));
    assert_eq!(snapshot.entries.time_us(0), None);
    assert_eq!(snapshot.entries.len(), 5);
    sample = sample::snapshot();
    assert_eq!(read(&sample.pickle(4)).entries.time_us(0), Some(sample::TIME));
}

#[test]
fn trailing_bytes_are_named_and_ignored() {
    let sample = sample::snapshot().pickle(4);
    let end = sample.len();
    let longer = [&sample[..], b"junk"].concat();
    let snapshot = read(&longer);
    assert_eq!(describe(&snapshot), describe(&read(&sample)));
    assert_eq!(
        warnings(&snapshot),
        format!("trailing-bytes: 4 bytes after the end of the pickle at byte {end} were ignored\n")
    );
}

#[test]
fn unlimited_is_minus_one() {
    let settings = dict([
        ("PYTORCH_CUDA_ALLOC_CONF", "".into()),
        ("max_split_size", (-1).into()),
        ("expandable_segments", Py::Bool(true)),
    ]);
    let snapshot = read(&sample::snapshot().with("allocator_settings", settings).pickle(4));
    let settings = snapshot.settings.unwrap();
    assert_eq!(settings.bytes("max_split_size"), None);
    assert_eq!(settings.effective["max_split_size"], -1);
    assert_eq!(settings.flag("expandable_segments"), Some(true));
}

#[test]
fn settings_keep_lists_pairs_and_texts_as_written() {
    let list = |items: &[i128]| Py::List(items.iter().map(|n| Py::Int(*n)).collect());
    let settings = dict([
        ("PYTORCH_ALLOC_CONF", "backend:native".into()),
        ("nested", vec![list(&[1, 2, 3]), list(&[4])].into()),
        ("pair", list(&[-1, 5])),
        ("wide", list(&[1 << 62, 1])),
        ("flags", vec![Py::Bool(true), Py::Bool(false)].into()),
        ("texts", vec!["a".into(), "b".into()].into()),
        ("none", Py::None),
    ]);
    let sample = sample::snapshot().with("allocator_settings", settings);
    for bytes in [sample.pickle(4), sample.json().into_bytes()] {
        let settings = read(&bytes).settings.unwrap();
        assert_eq!(settings.string, "backend:native");
        assert_eq!(
            Value::Object(settings.effective),
            json!({
                "nested": [[1, 2, 3], [4]],
                "pair": [-1, 5],
                "wide": [1u64 << 62, 1],
                "flags": [true, false],
                "texts": ["a", "b"],
                "none": null,
            })
        );
    }
}

#[test]
fn both_names_of_the_pending_state_are_one() {
    for word in ["active_pending_free", "active_awaiting_free"] {
        let sample = sample::changed_block(|block| block.with("state", word));
        assert_eq!(read(&sample.pickle(4)).blocks[0].state, BlockState::ActivePendingFree);
    }
}

#[test]
fn an_annotation_without_a_name_is_left_out() {
    let nameless = dict([("stage", "END".into()), ("device", 0.into()), ("time_us", 7.into())]);
    let odd = vec![nameless, dict([("name", Py::None), ("stage", "START".into())]), 5.into()];
    let snapshot = read(&sample::snapshot().with("external_annotations", odd).pickle(4));
    assert_eq!(snapshot.annotations.len(), 0, "{}", describe(&snapshot));
}
