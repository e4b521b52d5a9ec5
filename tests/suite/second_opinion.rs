//! Why the serde-pickle crate is a second opinion here and not the reader: it agrees with ours on
//! plain trees, but a snapshot is no tree. Every frame is shared, and of what is shared serde-pickle
//! makes an error, or `None`.

use crate::support::{fixtures, sample};
use std::fmt::Write as _;

use crate::support::pickle_bytes::{Py, Script, dict};
use crate::support::pickle_tree::Tree;
use serde_pickle::{DeOptions, HashableValue, SerOptions, Value, value_from_slice, value_to_vec};

/// The canonical JSON of [`Tree::to_json`]; dicts come sorted.
fn canonical(value: &Value) -> String {
    let list = |items: &[Value]| items.iter().map(canonical).collect::<Vec<_>>().join(",");
    match value {
        Value::None => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::I64(n) => n.to_string(),
        Value::Int(n) => n.to_string(),
        Value::F64(x) => format!(r#"{{"float":"{:016x}"}}"#, x.to_bits()),
        Value::Bytes(bytes) => {
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            format!(r#"{{"bytes":"{hex}"}}"#)
        }
        Value::String(text) => serde_json::to_string(text).unwrap(),
        Value::List(items) => format!("[{}]", list(items)),
        Value::Tuple(items) => format!(r#"{{"tuple":[{}]}}"#, list(items)),
        Value::Set(items) | Value::FrozenSet(items) => {
            format!("[{}]", list(&items.iter().cloned().map(plain).collect::<Vec<_>>()))
        }
        Value::Dict(pairs) => {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(key, value)| format!("[{},{}]", canonical(&plain(key.clone())), canonical(value)))
                .collect();
            format!(r#"{{"dict":[{}]}}"#, pairs.join(","))
        }
    }
}

fn plain(value: HashableValue) -> Value {
    value.into_value()
}

fn ours(pickle: &[u8]) -> String {
    Tree::read(pickle).unwrap().to_json(usize::MAX).unwrap()
}

/// A dozen trees that share nothing, with the keys of dicts in order.
fn trees() -> Vec<Py> {
    let mut sorted = sample::event("alloc", 1 << 40, 512, sample::TIME);
    sorted.pairs().sort_by_key(|(key, _)| format!("{key:?}"));
    *sorted.at("frames") =
        vec![dict([("filename", "/app/größe.py".into()), ("line", 7.into()), ("name", "forward 🧠".into())])].into();
    vec![
        Py::None,
        vec![Py::Bool(true), Py::Bool(false), Py::None].into(),
        [0, 1, -1, 255, 256, 65535, 65536].map(Py::Int).to_vec().into(),
        [31, 32, 59, 60, 62, 63, 64, 65, 100, 126].map(|bits| Py::Int(1 << bits)).to_vec().into(),
        [31, 32, 59, 60, 63, 64, 100].map(|bits| Py::Int(-(1 << bits) - 1)).to_vec().into(),
        [0.0, -0.0, 1.5, f64::INFINITY, f64::MIN_POSITIVE].map(Py::Float).to_vec().into(),
        vec!["".into(), "漢字 \"\\\n\u{1}".into(), "x".repeat(70_000).as_str().into()].into(),
        Py::Bytes((0..=255).collect()),
        Py::Tuple(vec![Py::Tuple(vec![]), Py::Tuple(vec![1.into()]), vec![].into()]),
        vec![vec![vec![vec![5.into()].into()].into()].into(), dict([])].into(),
        vec![Py::Int(7); 2500].into(),
        sorted,
    ]
}

#[test]
fn both_read_the_same_from_trees_that_share_nothing() {
    let trees = trees();
    assert_eq!(trees.len(), 12);
    for tree in trees {
        for protocol in 2..=5 {
            let pickle = tree.pickle(protocol);
            let theirs = value_from_slice(&pickle, DeOptions::new()).unwrap();
            assert_eq!(ours(&pickle), canonical(&theirs), "{tree:?} in protocol {protocol}");
            // And what serde-pickle itself writes.
            let written = value_to_vec(&theirs, SerOptions::new()).unwrap();
            assert_eq!(ours(&written), canonical(&theirs), "{tree:?} written by serde-pickle");
        }
    }
}

#[test]
fn a_dict_that_is_used_twice_is_too_much_for_serde_pickle() {
    // d = {"name": "forward"}; [d, d], as CPython writes it.
    let pickle = Script::default().raw(b"\x80\x04]\x94(}\x94\x8c\x04name\x94\x8c\x07forward\x94sh\x01e").stop();
    assert!(pickle.len() < 60);
    let error = value_from_slice(&pickle, DeOptions::new()).unwrap_err().to_string();
    assert!(error.contains("recursive"), "{error}");
    let frame = r#"{"dict":[["name","forward"]]}"#;
    assert_eq!(ours(&pickle), format!("[{frame},{frame}]"));
}

#[test]
fn no_recording_with_stacks_can_be_read_by_serde_pickle() {
    for name in fixtures::names() {
        // The one without stacks shares no frames.
        if name.contains("no-history") {
            continue;
        }
        let error = value_from_slice(&fixtures::pickle(&name), DeOptions::new());
        let error = error.map(drop).unwrap_err().to_string();
        assert!(error.contains("recursive"), "{name}: {error}");
    }
}

#[test]
fn with_its_way_out_frames_are_silently_none() {
    let pickle = fixtures::pickle("2.15.0-holes");
    let options = DeOptions::new().replace_recursive_structures();
    let Value::Dict(snapshot) = value_from_slice(&pickle, options).unwrap() else {
        panic!("a snapshot is a dict");
    };
    let key = |key: &str| HashableValue::String(key.to_owned());
    let Some(Value::List(traces)) = snapshot.get(&key("device_traces")) else { panic!("traces") };
    let (mut whole, mut lost) = (0, 0);
    for trace in traces {
        let Value::List(entries) = trace else { panic!("a trace is a list") };
        for entry in entries {
            let Value::Dict(entry) = entry else { panic!("an entry is a dict") };
            match entry.get(&key("frames")) {
                Some(Value::List(frames)) if !frames.contains(&Value::None) => whole += 1,
                Some(Value::List(_) | Value::None) => lost += 1,
                other => panic!("frames are {other:?}"),
            }
        }
    }
    let snapshot = oomscope::snapshot::Snapshot::read(&pickle, &|_| ()).unwrap();
    let events: Vec<_> = snapshot.device(0).entries().collect();
    let ours = events.iter().filter(|e| !snapshot.stacks.frames(e.stack).is_empty()).count();
    assert_eq!(whole + lost, events.len());
    assert!(ours > events.len() * 9 / 10, "{ours} of {} entries have a stack", events.len());
    assert!(lost > events.len() / 2, "serde-pickle lost {lost} stacks of {}", events.len());
}
