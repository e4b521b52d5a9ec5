//! Damaged, truncated and wrong files end in one clear sentence that names the place.

use crate::support::describe::refusal;
use crate::support::pickle_bytes::{Py, Script, dict};
use crate::support::{describe, fixtures, sample};

/// The number before `noun` in a message.
fn number_before(message: &str, noun: &str) -> usize {
    let before = message.split(noun).next().unwrap().trim_end();
    before.rsplit(' ').next().unwrap().replace(',', "").parse().unwrap()
}

/// The number of a message's `(byte N`.
fn offset(message: &str) -> usize {
    let place = message.split("(byte ").nth(1).unwrap_or_else(|| panic!("no place: {message}"));
    place.split([',', ')']).next().unwrap().parse().unwrap()
}

#[track_caller]
fn assert_says(bytes: &[u8], parts: &[&str]) {
    let message = refusal(bytes);
    for part in parts {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
}

fn check_truncated(pickle: &[u8], len: usize) -> usize {
    let message = refusal(&pickle[..len]);
    assert!(message.contains("it ends in the middle: the file is truncated"), "{len}: {message}");
    let offset = offset(&message);
    assert!(offset <= len && len - offset < 512, "{len}: {message}");
    number_before(&message, "complete trace entr")
}

#[test]
fn every_prefix_is_truncated_and_counts_the_entries_before() {
    for pickle in [sample::snapshot().pickle(4), fixtures::pickle("2.15.0-gpt_varlen-no-history")] {
        let mut entries = 0;
        for len in 1..pickle.len() {
            let now = check_truncated(&pickle, len);
            assert!(now == entries || now == entries + 1, "{entries} entries, then {now}");
            entries = now;
        }
    }
    for name in ["2.15.0-cpp_pickler-streams", "2.1.2-holes-at-oom", "2.15.0-two_devices"] {
        let pickle = fixtures::pickle(name);
        let all = describe::read(&pickle).entries.len();
        let mut entries = 0;
        for len in (1..pickle.len()).step_by(997) {
            let now = check_truncated(&pickle, len);
            assert!(entries <= now && now <= all, "{entries} entries, then {now}");
            entries = now;
        }
        assert_eq!(check_truncated(&pickle, pickle.len() - 1), all, "{name}");
    }
}

#[test]
fn a_pointer_of_git_lfs_names_what_fetches_the_file() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n";
    assert_says(pointer, &["is a pointer of Git LFS", "git lfs pull"]);
}

#[test]
fn an_empty_file_means_that_the_writer_died() {
    for bytes in [&b""[..], b"\n", b"  \r\n\t"] {
        assert_says(bytes, &["is empty", "record it again"]);
    }
}

#[test]
fn a_file_that_is_no_pickle_is_refused_at_its_first_byte() {
    for bytes in [
        &b"\x7fELF\x02\x01\x01"[..],
        b"\x00\x00\x00\x00",
        b"\xef\xbb\xbf{}",
        b"\x1f\x9d\x90",
        b"#!/bin/sh\n",
        b"<html>",
        b"\xff\xfe\xff\xfe",
    ] {
        assert_says(bytes, &["not a pickle", "(byte 0, opcode 0x"]);
    }
    assert_says(b"WARNING: no CUDA\n", &["it is text", "`oomscope explain` reads logs"]);
    assert_says(b"PK\x03\x04rest of an archive", &["zip archive", "torch.save", "_dump_snapshot"]);
    assert_says(b"\x1f\x8brest of another one", &["is compressed twice"]);
    assert_says(&[b"rank0.pickle\0".repeat(20).as_slice(), b"ustar"].concat()[3..], &["tar archive", "unpack"]);
    assert_says(b"\x80\x06N.", &["pickle protocol 6", "(byte 0, opcode PROTO)"]);
    assert_says(b"\x80\xffN.", &["pickle protocol 255"]);
}

#[test]
fn a_sound_pickle_of_something_else_is_described() {
    let event = || sample::event("alloc", 1, 2, 3);
    for (value, says) in [
        (Py::None, "it holds None"),
        (Py::Int(5), "it holds an integer"),
        (Py::Int(1 << 100), "it holds a huge integer"),
        (Py::Float(0.5), "it holds a float"),
        ("text".into(), "it holds a string"),
        (Py::Bytes(vec![1]), "it holds bytes"),
        (Py::Bool(true), "it holds a bool"),
        (Py::Tuple(vec![1.into(), 2.into()]), "it holds a list"),
        (event(), "it holds a dict"),
        (vec![1.into(), 2.into(), 3.into()].into(), "something other than segments"),
        (vec![event()].into(), "a bare list of trace entries"),
        (dict([]), "without 'segments' and 'device_traces' (its keys: none)"),
        (dict([("model", 1.into()), ("optimizer", 2.into())]), "(its keys: model, optimizer)"),
        (dict([("segments", 5.into())]), "'segments' is an integer"),
        (dict([("segments", vec!["x".into()].into())]), "something other than segments"),
        (dict([("segments", vec![dict([])].into())]), "something other than segments"),
        (dict([("segments", vec![event()].into())]), "a bare list of trace entries"),
        (dict([("device_traces", Py::None)]), "'device_traces' is None"),
        (dict([("device_traces", dict([]))]), "'device_traces' is a dict"),
        (dict([("device_traces", vec![Py::None].into())]), "the trace of device 0 is None"),
        (
            dict([("device_traces", vec![vec![].into(), vec![7.into()].into()].into())]),
            "the trace of device 1 holds something other than trace entries",
        ),
        (
            dict([("device_traces", vec![event()].into())]),
            "'device_traces' holds records instead of one list for each device",
        ),
    ] {
        let value = &value;
        assert_says(&value.pickle(4), &["is not a memory snapshot", says]);
        if matches!(value, Py::List(_) | Py::Dict(_)) {
            assert_says(value.json().as_bytes(), &["is not a memory snapshot", says]);
        }
    }
}

#[test]
fn names_from_the_file_cannot_upset_the_terminal() {
    let evil = "\x1b[2J\n\r\u{202e}evil".to_owned() + &"x".repeat(5000);
    let evil = evil.as_str();
    refusal(&dict([(evil, 1.into()), ("b", 2.into())]).pickle(4));
    refusal(&sample::changed_block(|block| block.with("state", evil)).pickle(4));
    refusal(&sample::changed_segment(|s| s.with("segment_type", evil)).pickle(4));
    refusal(format!("cos\x1b[2J\r\u{7}{evil}\n.").as_bytes());
    refusal(&Script::default().text("os\nx").text(evil).op(0x93).stop());
    refusal(format!("P{evil}\n.").as_bytes());
    refusal(format!("I\x1b[2J\r{evil}\n.").as_bytes());
    refusal(format!("S\x1b[2J{evil}\n.").as_bytes());
    let odd = sample::changed_event(|e| e.with(evil, 1).with("action", evil)).with(evil, 2);
    let warnings = describe::read(&odd.pickle(4)).warnings.to_vec();
    assert_eq!(warnings.len(), 3);
    for warning in warnings {
        assert!(!warning.message.chars().any(char::is_control), "{:?}", warning.message);
        assert!(warning.message.len() < 300, "{:?}", warning.message);
    }
}

/// A value of every type.
fn values() -> Vec<(&'static str, Py)> {
    vec![
        ("none", Py::None),
        ("bool", Py::Bool(true)),
        ("int", 7.into()),
        ("huge", Py::Int(1 << 100)),
        ("float", Py::Float(0.5)),
        ("text", "x".into()),
        ("bytes", Py::Bytes(b"x".to_vec())),
        ("empty list", vec![].into()),
        ("list of ints", vec![1.into(), 2.into(), 3.into()].into()),
        ("list of texts", vec!["x".into(), "y".into()].into()),
        ("pair", Py::Tuple(vec![1.into(), 2.into()])),
        ("empty dict", dict([])),
        ("dict", dict([("x", 1.into())])),
        ("frame", sample::frame("a.py", 1, "f")),
        ("entry", sample::event("alloc", 1, 2, 3)),
        ("block", sample::block(4096, 4096, "inactive")),
        ("blocks", sample::two_blocks(4096).into()),
    ]
}

/// Every value not named in `fits` is refused as `key` of what `place` puts it into.
fn check_field(record: &str, key: &str, fits: &[&str], place: impl Fn(Py) -> Py) {
    for (name, value) in values() {
        let pickle = place(value).pickle(4);
        if fits.contains(&name) {
            describe::read(&pickle);
        } else {
            assert_says(&pickle, &[record, " has ", &format!(" as '{key}', where ")]);
            let message = refusal(&pickle);
            assert!(message.contains(", opcode SETITEMS)"), "{key} = {name}: {message}");
            assert!(offset(&message) > 0, "{message}");
        }
    }
}

const NUMBER: &[&str] = &["none", "bool", "int"];
const FRAMES: &[&str] = &["none", "empty list", "list of texts"];

#[test]
fn a_trace_entry_with_a_field_of_the_wrong_type_is_named() {
    for key in ["addr", "size", "stream", "time_us"] {
        check_field("trace entry", key, NUMBER, |v| sample::changed_event(|e| e.with(key, v)));
    }
    check_field("trace entry", "device_free", NUMBER, |v| {
        sample::changed_event(|e| e.without("addr").with("device_free", v))
    });
    check_field("trace entry", "action", &["text"], |v| sample::changed_event(|e| e.with("action", v)));
    check_field("trace entry", "pool_id", &["pair"], |v| sample::changed_event(|e| e.with("pool_id", v)));
    check_field("trace entry", "frames", FRAMES, |v| sample::changed_event(|e| e.with("frames", v)));
    let mut events = sample::events(sample::ADDRESS);
    events[3] = events[3].clone().with("size", "big");
    let sample = sample::snapshot_of(vec![], vec![events.into()]);
    assert_says(&sample.pickle(4), &["trace entry 3 has a string as 'size'", "; 3 complete trace"]);
}

#[test]
fn a_block_with_a_field_of_the_wrong_type_is_named() {
    for key in ["address", "size", "requested_size"] {
        check_field("a block", key, NUMBER, |v| sample::changed_block(|b| b.with(key, v)));
    }
    check_field("a block", "frames", FRAMES, |v| sample::changed_block(|b| b.with("frames", v)));
    let text_fits = |v: Py| if v == "x".into() { "inactive".into() } else { v };
    check_field("a block", "state", &["text"], |v| sample::changed_block(|b| b.with("state", text_fits(v))));
}

#[test]
fn a_segment_with_a_field_of_the_wrong_type_is_named() {
    for key in ["device", "address", "total_size", "stream", "is_expandable"] {
        check_field("a segment", key, NUMBER, |v| sample::changed_segment(|s| s.with(key, v)));
    }
    check_field("a segment", "segment_pool_id", &["pair"], |v| {
        sample::changed_segment(|s| s.with("segment_pool_id", v))
    });
    check_field("a segment", "frames", FRAMES, |v| sample::changed_segment(|s| s.with("frames", v)));
    let text_fits = |v: Py| if v == "x".into() { "large".into() } else { v };
    check_field("a segment", "segment_type", &["text"], |v| {
        sample::changed_segment(|s| s.with("segment_type", text_fits(v)))
    });
    check_field("a segment", "blocks", &["empty list", "blocks"], |v| sample::changed_segment(|s| s.with("blocks", v)));
}

#[test]
fn a_frame_with_a_field_of_the_wrong_type_is_named() {
    let place = |key: &'static str| {
        move |v: Py| {
            let frame = sample::frame("a.py", 1, "f").with(key, v);
            sample::changed_event(|e| e.with("frames", Py::List(vec![frame])))
        }
    };
    check_field("a frame", "line", NUMBER, place("line"));
    check_field("a frame", "filename", &["none", "text"], place("filename"));
    check_field("a frame", "name", &["none", "text"], place("name"));
}

#[test]
fn words_that_nobody_knows_are_named() {
    let sample = sample::changed_block(|b| b.with("state", "levitating"));
    assert_says(&sample.pickle(4), &["a block has the unknown state 'levitating'", "SETITEMS"]);
    let sample = sample::changed_segment(|s| s.with("segment_type", "medium"));
    assert_says(&sample.pickle(4), &["a segment has the unknown type 'medium'", "SETITEMS"]);
}

#[test]
fn records_in_wrong_company_are_refused() {
    let mixed = |items: Vec<Py>| sample::snapshot().with("device_traces", vec![items.into()]);
    let event = || sample::event("alloc", 1, 2, 3);
    assert_says(
        &mixed(vec![event(), 5.into()]).pickle(4),
        &["a list mixes records of a snapshot with others", "opcode APPENDS"],
    );
    // After the first batch of 1000 too.
    let mut many = vec![event(); 1000];
    many.push(Py::None);
    assert_says(&mixed(many).pickle(4), &["a list mixes records", "; 1,000 complete trace entries"]);
    // An entry, and a whole trace, that two devices share.
    let traces = |second: Vec<u8>| {
        let first = Py::Raw(Script::default().py(&Py::from(vec![event()])).put(0).0);
        sample::snapshot_of(vec![], vec![first, Py::Raw(second)])
    };
    assert_says(&traces(Script::default().get(0).0).pickle(4), &["device 1 shares entries"]);
    let twice = Script::default().py(&event()).put(9).raw(b"0](").get(9).get(9).op(b'e').0;
    assert_says(&traces(twice).pickle(4), &["device 1 shares entries"]);
    // A block list that two segments share.
    let blocks = Script::default().py(&sample::two_blocks(sample::ADDRESS).into()).put(0).0;
    let segment = |blocks: Vec<u8>| sample::segment(0, sample::ADDRESS, vec![]).with("blocks", Py::Raw(blocks));
    let segments = vec![segment(blocks), segment(Script::default().get(0).0)];
    assert_says(&sample::snapshot_of(segments, vec![]).pickle(4), &["a block belongs to two segments", "SETITEMS"]);
}

#[test]
fn broken_json_names_the_byte() {
    let json = sample::snapshot().json();
    let at = json.find("\"time_us\"").unwrap();
    // A character out of place.
    let broken = format!("{}!{}", &json[..at], &json[at..]);
    assert_says(broken.as_bytes(), &["cannot be read as JSON", &format!("(byte {at})")]);
    // The same further down, after line breaks.
    let (lines, shift) = (json.replacen(", ", ",\n", 10), json[..at].matches(", ").count().min(10));
    let at_line = at - shift;
    let at_line = lines[at_line.saturating_sub(20)..].find("\"time_us\"").unwrap() + at_line - 20;
    let broken = format!("{}!{}", &lines[..at_line], &lines[at_line..]);
    assert_says(broken.as_bytes(), &[&format!("(byte {at_line})")]);
    // Cut off.
    for len in [1, at, json.len() - 1] {
        assert_says(&json.as_bytes()[..len], &[&format!("(byte {len})")]);
    }
    // Twice.
    assert_says(format!("{json} {json}").as_bytes(), &[&format!("(byte {})", json.len() + 1)]);
    // A field of the wrong type, in a sound file.
    let wrong = sample::changed_event(|e| e.with("size", "big")).json();
    let message = refusal(wrong.as_bytes());
    assert!(message.contains("trace entry 0 has a string as 'size'"), "{message}");
    let near = &wrong[..offset(&message)];
    assert!(near.ends_with('}') || wrong[near.len()..].starts_with('}'), "{message}");
}

#[test]
fn damage_is_named_with_its_byte_and_opcode() {
    for (bytes, says) in [
        (&b"\x80\x04K\x01\xf0."[..], "no such opcode (byte 4, opcode 0xf0)"),
        (b"\x80\x04K\x01e.", "needs a MARK that is missing (byte 4, opcode APPENDS)"),
        (b"\x80\x04(1.", "needs a value that is missing (byte 4, opcode STOP)"),
        // Nothing is taken from below an open MARK.
        (b"\x80\x04N(.", "needs a value that is missing (byte 4, opcode STOP)"),
        (b"\x80\x04NN(\x86.", "needs a value that is missing (byte 5, opcode TUPLE2)"),
        (b"\x80\x04]N(a.", "needs a value that is missing (byte 5, opcode APPEND)"),
        (b"\x80\x04](((NeN.", "needs a value that is missing (byte 7, opcode APPENDS)"),
        (b"N\x94](((h\0ee.", "needs a value that is missing (byte 8, opcode APPENDS)"),
        (b"N\x94]((h\0ee.", "needs a value that is missing (byte 7, opcode APPENDS)"),
        (b"\x80\x04\x94.", "needs a value that is missing (byte 2, opcode MEMOIZE)"),
        (b"\x80\x04}(K\x01u.", "a dict key without a value (byte 6, opcode SETITEMS)"),
        (b"\x80\x04h\x05.", "memo entry 5 was never written (byte 2, opcode BINGET)"),
        (b"\x80\x04j\xff\xff\xff\xff.", "memo entry 4294967295 was never written (byte 2"),
        // Inside a list of nothing but references, which is read as one.
        (b"\x80\x04N\x94](h\0h\0h\x09e.", "memo entry 9 was never written (byte 10, opcode BINGET)"),
        (b"\x80\x04Nr\xff\xff\xff\xff.", "memo number 4294967295 exceeds the size of the file (byte 3"),
        (b"Np99999999999999999999\n.", "'99999999999999999999' is not a number (byte 1"),
        (b"Ifive\n.", "'five' is not a number (byte 0, opcode INT)"),
        (b"L12x\n.", "'12x' is not a number (byte 0, opcode LONG)"),
        (b"F1.2.3\n.", "'1.2.3' is not a number (byte 0, opcode FLOAT)"),
        (b"\x80\x02\x8b\xff\xff\xff\xff.", "invalid length (byte 2, opcode LONG4)"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "the file is truncated (byte 2, opcode LONG4)"),
        (b"\x80\x02T\0\0\0\x80.", "invalid length (byte 2, opcode BINSTRING)"),
        (b"\x80\x04\x8d\0\0\0\0\0\0\0\x80.", "truncated (byte 2, opcode BINUNICODE8)"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "truncated (byte 2, opcode BINUNICODE8)"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "truncated (byte 2, opcode BINBYTES8)"),
        (b"\x80\x05\x96\0\0\0\0\0\0\0\x01.", "truncated (byte 2, opcode BYTEARRAY8)"),
        (b"\x80\x04X\xff\xff\xff\xff.", "truncated (byte 2, opcode BINUNICODE)"),
        (b"\x80\x02\x8a\xff\x01.", "truncated (byte 2, opcode LONG1)"),
        (b"\x80\x04N(K\x01e.", "not a list (byte 6, opcode APPENDS)"),
        (b"\x80\x04N(K\x01K\x02u.", "not a dict (byte 8, opcode SETITEMS)"),
    ] {
        assert_says(bytes, &[says]);
    }
}
