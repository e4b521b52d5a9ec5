//! A file written to do harm does none: nothing in it is run, and reading it takes no more heap than
//! 64 times its size and a mebibyte, and no time to speak of, however it nests and shares. Slow: large files.

use crate::support::{describe, peak_heap, sample};

use std::time::{Duration, Instant};

use crate::support::describe::{describe, read};
use crate::support::pickle_bytes::{Py, Script, dict};
use crate::support::pickle_tree::Tree;
use oomscope::snapshot::Snapshot;

const MILLION: usize = 1_050_000;
/// Enough that whatever takes the square of it would not end.
const MANY: usize = 100_000;

/// Reads `bytes` both ways within the bounds; the errors, if they are any.
fn harmless(name: &str, bytes: &[u8]) -> (Option<String>, Option<String>) {
    let bounded = |way: &str, (error, peak): (Option<String>, usize), start: Instant| {
        let bound = 64 * bytes.len() + (1 << 20);
        assert!(peak <= bound, "{name}: {way} takes {peak} bytes for {} of input", bytes.len());
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_secs(30), "{name}: {way} takes {elapsed:?}");
        error
    };
    let start = Instant::now();
    let snapshot = peak_heap::peak_of(|| {
        Snapshot::read(bytes, &|_| ()).err().map(|error| {
            let message = error.to_string();
            assert!(message.len() < 700 && !message.contains('\n'), "{message}");
            message
        })
    });
    let snapshot = bounded("the snapshot", snapshot, start);
    let start = Instant::now();
    let tree = peak_heap::peak_of(|| match Tree::read(bytes) {
        Ok(tree) => {
            // Whatever it expands to, writing it ends.
            tree.to_json(1000);
            None
        }
        Err(error) => Some(error.to_string()),
    });
    (snapshot, bounded("the tree", tree, start))
}

/// `parts`, each as often as it says, and STOP.
fn repeated(parts: &[(&[u8], usize)]) -> Vec<u8> {
    let mut bytes = b"\x80\x04".to_vec();
    for (part, times) in parts {
        bytes.extend(part.repeat(*times));
    }
    bytes.push(b'.');
    bytes
}

/// Large files, of opcodes that each make a value of many times their length: refused before memory is out of proportion.
#[test]
fn large_files_take_memory_in_proportion() {
    const LARGE: usize = 24 << 20;
    let unknown = b"}X\x01\0\0\0a";
    for (name, bytes) in [
        ("tuples by TUPLE1", repeated(&[(unknown, 1), (b")", 1), (b"\x85", LARGE), (b"s", 1)])),
        ("lists by LIST", repeated(&[(unknown, 1), (b"(", LARGE / 2), (b"l", LARGE / 2), (b"s", 1)])),
        ("lists by APPEND", repeated(&[(unknown, 1), (b"]", LARGE / 2), (b"a", LARGE / 2), (b"s", 1)])),
        ("values on the stack", repeated(&[(b"N", LARGE)])),
        ("marks", repeated(&[(b"(", LARGE)])),
        ("memo", repeated(&[(b"N", 1), (b"\x94", LARGE)])),
        ("floats", repeated(&[(b"(", 1), (b"G\0\0\0\0\0\0\0\0", LARGE / 9), (b"t", 1)])),
        ("JSON", [&b"{\"a\":["[..], &b"[[]],".repeat(LARGE / 5), b"0]}"].concat()),
    ] {
        let (error, peak) = peak_heap::peak_of(|| Snapshot::read(&bytes, &|_| ()).unwrap_err().to_string());
        let bound = 4 * bytes.len() + (64 << 20) + (1 << 20);
        assert!(peak <= bound, "{name}: {} MiB for {} MiB: {error}", peak >> 20, bytes.len() >> 20);
    }
}

#[test]
fn a_million_nested_containers_are_read_without_recursion() {
    for (name, bytes) in [
        ("lists by APPEND", repeated(&[(b"]", MILLION), (b"a", MILLION - 1)])),
        ("tuples by TUPLE1", repeated(&[(b")", 1), (b"\x85", MILLION)])),
        ("dicts by SETITEM", repeated(&[(b"}N", MILLION), (b"N", 1), (b"s", MILLION)])),
        ("lists by APPENDS", repeated(&[(b"](", MANY), (b"e", MANY)])),
        ("lists by LIST", repeated(&[(b"(", MANY), (b"l", MANY)])),
        ("lists in the memo", repeated(&[(b"]\x94(", MANY), (b"e", MANY)])),
        ("tuples by TUPLE", repeated(&[(b"(", MANY), (b"t", MANY)])),
        ("tuples by TUPLE2", repeated(&[(b"N", 1), (b"2\x86", MANY)])),
        ("sets", repeated(&[(b"(", MANY), (b"\x91", MANY)])),
        ("dicts by SETITEMS", repeated(&[(b"}(N", MANY), (b"N", 1), (b"u", MANY)])),
        ("dicts by DICT", repeated(&[(b"(N", MANY), (b"N", 1), (b"d", MANY)])),
        ("keys of dicts", repeated(&[(b"}(", MANY), (b"N", 1), (b"Nu", MANY)])),
        ("lists in a second batch", repeated(&[(b"](N", MANY), (b"e(Ne", MANY)])),
    ] {
        let (snapshot, tree) = harmless(name, &bytes);
        assert_eq!(tree, None, "{name}");
        // A million containers take more memory than a file of this size may.
        let refusal = if bytes.len() > MILLION { "no memory snapshot does that" } else { "is not a memory snapshot" };
        assert!(snapshot.unwrap().contains(refusal), "{name}");
    }
    for (name, bytes) in
        [("MARK only", repeated(&[(b"(", MILLION)])), ("lists that never end", repeated(&[(b"]\x94(", MILLION)]))]
    {
        let (snapshot, tree) = harmless(name, &bytes[..bytes.len() - 1]);
        assert!(snapshot.unwrap().contains("truncated"), "{name}");
        assert!(tree.unwrap().contains("truncated"), "{name}");
    }
}

#[test]
fn records_nested_in_records_are_read_without_recursion() {
    // Each entry has the next one where frames belong, written pair by pair.
    let opening = Script::default().text("action").put(0).text("size").put(1).text("frames").put(2);
    let text = Script::default().text("alloc").put(3).0;
    let open = b"}h\x00h\x03sh\x01K\x01sh\x02";
    for (name, before, after) in [
        ("entries", &b""[..], &b"s"[..]),
        ("entries in lists", b"]", b"as"),
        ("entries behind text in lists", b"]h\x03a", b"as"),
        ("entries behind nothing in lists", b"](N", b"es"),
    ] {
        let open = [open, before].concat();
        let bytes = [&b"\x80\x04"[..], &opening.0, &text, &open.repeat(MANY), b"N", &after.repeat(MANY), b"."].concat();
        let (snapshot, tree) = harmless(name, &bytes);
        assert!(snapshot.is_some(), "{name}");
        assert_eq!(tree, None, "{name}");
    }
}

/// `levels` lists of ten references each to the one before.
fn laughs(levels: u8) -> Vec<u8> {
    let mut script = Script::default().raw(b"](K\x01K\x02K\x03eq\0");
    for level in 0..levels {
        let tenfold = [b'h', level].repeat(10);
        script = script.raw(b"0](").raw(&tenfold).raw(b"eq").raw(&[level + 1]);
    }
    script.0
}

#[test]
fn shared_structure_is_never_expanded() {
    let bomb = || Py::Raw(laughs(30));
    let with = |key: &str, value: Py| sample::snapshot().with(key, value);
    for (name, value, error) in [
        ("settings", with("allocator_settings", dict([("x", bomb())])), None),
        ("annotations", with("external_annotations", bomb()), None),
        ("host segments", with("host_segments", bomb()), None),
        ("host traces", with("host_traces", bomb()), None),
        ("an unknown key", with("surprise", bomb()), None),
        ("a history", sample::changed_block(|b| b.with("history", bomb())), None),
        ("alone", bomb(), Some("something other than segments")),
        ("frames", sample::changed_event(|e| e.with("frames", bomb())), Some("a list of frames")),
        ("traces", with("device_traces", bomb()), Some("something other than trace entries")),
        ("segments", with("segments", bomb()), Some("something other than segments")),
    ] {
        let (snapshot, tree) = harmless(name, &value.pickle(4));
        assert_eq!(tree, None, "{name}");
        match (snapshot, error) {
            (None, None) => {}
            (Some(message), Some(error)) if message.contains(error) => {}
            (message, _) => panic!("{name}: {message:?}"),
        }
    }
}

#[test]
fn json_of_a_tree_ends_at_its_limits() {
    let nested = |depth: usize| Tree::read(&repeated(&[(b"]", depth), (b"a", depth - 1)])).unwrap().to_json(10_000);
    assert_eq!(nested(1000).unwrap().len(), 2000);
    assert_eq!(nested(1100), None, "too deep");
    let laughing = Tree::read(&Script(laughs(3)).stop()).unwrap();
    assert_eq!(laughing.to_json(1 << 20).unwrap().matches('1').count(), 1000);
    assert_eq!(laughing.to_json(1000), None, "too long");
}

/// A list of `count` references to memo slot 255, which holds what `shared` leaves on the stack.
fn many_of(shared: Script, count: usize) -> Py {
    let shared = shared.raw(b"q\xff0](").raw(&b"h\xff".repeat(count)).op(b'e');
    Py::Raw(shared.0)
}

fn wide_dict(pairs: usize) -> Script {
    let mut script = Script::default().raw(b"}(");
    for i in 0..pairs {
        script = script.int(i as i128).op(b'N');
    }
    script.op(b'u')
}

#[test]
fn wide_structure_shared_often_costs_neither_heap_nor_time() {
    let long = "x".repeat(MANY);
    let settings = |value: Py| sample::snapshot().with("allocator_settings", value);
    let references = |slot: u8, count: usize| [b'h', slot].repeat(count);
    let wide = |inner: &[u8]| Script::default().raw(b"](").raw(inner).op(b'e');
    let list_of_lists = many_of(wide(&b"K\x01".repeat(MANY)), MANY);
    let four_levels = Script::default()
        .raw(&wide(&b"K\x01".repeat(2000)).0)
        .raw(b"q\x010](")
        .raw(&references(1, 2000))
        .raw(b"eq\x020](")
        .raw(&references(2, 2000))
        .raw(b"eq\x030](")
        .raw(&references(3, 2000))
        .op(b'e');
    let long_keys = Script::default().text(&long).raw(b"q\x010}(").raw(&references(1, 2 * MANY)).op(b'u');
    let each_its_list =
        Script::default().raw(&wide_dict(MANY).0).raw(b"q\x010](").raw(&b"](h\x01Ne".repeat(MANY)).op(b'e');
    for (name, value) in [
        ("settings of one long text", settings(dict([("x", many_of(Script::default().text(&long), MANY))]))),
        ("settings of long keys", settings(Py::Raw(long_keys.0))),
        ("settings in four levels", settings(dict([("x", Py::Raw(four_levels.0))]))),
        ("settings of lists", settings(dict([("x", list_of_lists.clone())]))),
        ("annotations", sample::snapshot().with("external_annotations", many_of(wide_dict(MANY), MANY / 7))),
        ("host segments", sample::snapshot().with("host_segments", many_of(wide_dict(MANY), MANY / 7))),
        ("a dict in many lists", sample::snapshot().with("surprise", Py::Raw(each_its_list.0))),
        ("a list in a list", sample::snapshot().with("surprise", list_of_lists)),
    ] {
        let (snapshot, tree) = harmless(name, &value.pickle(4));
        assert_eq!((snapshot, tree), (None, None), "{name}");
    }
}

#[test]
fn settings_too_large_are_cut_with_a_warning() {
    let text = many_of(Script::default().text(&"x".repeat(MANY)), 100);
    let large = sample::snapshot().with("allocator_settings", dict([("x", text)]));
    assert!(describe::warnings(&read(&large.pickle(4))).starts_with("settings-size: "));
}

fn references_to_open_lists() -> Vec<u8> {
    (0..50_000).fold(Script::default(), |s, slot| s.op(b']').put(slot).get(slot)).0
}

#[test]
fn no_opcode_takes_more_heap_than_its_share() {
    let words = Script::default().text("filename").raw(b"q\x01").text("name").raw(b"qx").0;
    let record_words =
        |first: &str, second: &str| Script::default().text(first).raw(b"q\x01").text(second).raw(b"q\x02").0;
    let distinct =
        |script: fn(Script, u32) -> Script| (0..50_000).fold(Script::default().raw(b"]("), script).op(b'e').0;
    let often = |opcodes: &[u8]| opcodes.repeat(300_000 / opcodes.len());
    for (name, opcodes) in [
        ("NONE", often(b"N")),
        ("EMPTY_LIST", often(b"]")),
        ("EMPTY_DICT", often(b"}")),
        ("EMPTY_TUPLE", often(b")")),
        ("EMPTY_SET", often(b"\x8f")),
        ("MARK", often(b"(")),
        ("MARK and TUPLE", often(b"(t")),
        ("MARK and LIST", often(b"(l")),
        ("lists of one", often(b"(Nl")),
        ("tuples of one", often(b"N\x85")),
        ("pairs of integers", often(b"K\x01K\x02\x86")),
        ("DUP", [&b"N"[..], &often(b"2")].concat()),
        ("DUP and TUPLE2", often(b"N2\x86")),
        ("MEMOIZE", [&b"N"[..], &often(b"\x94")].concat()),
        ("MEMOIZE of lists", often(b"]\x94")),
        ("MEMOIZE of a large integer", [&b"J\xff\xff\xff\x7f"[..], &often(b"\x94")].concat()),
        ("references to an open list", [&b"]\x94"[..], &often(b"h\0")].concat()),
        ("references to open lists", references_to_open_lists()),
        ("BININT1", often(b"K\x01")),
        ("LONG1 of no bytes", often(b"\x8a\0")),
        ("LONG1 of eight bytes", often(b"\x8a\x08\0\0\0\0\0\0\0\x7f")),
        ("LONG4 of no bytes", often(b"\x8b\0\0\0\0")),
        ("INT", often(b"I1\n")),
        ("LONG", often(b"L99999999999999999999L\n")),
        ("FLOAT", often(b"F1\n")),
        ("SHORT_BINBYTES", often(b"C\0")),
        ("SHORT_BINSTRING", often(b"U\0")),
        ("dicts", often(b"}(NNu")),
        ("dicts by SETITEM", often(b"}NNs")),
        ("frames", [&words[..], &often(b"}(h\x01NhxNu")].concat()),
        ("entries", [&record_words("action", "size")[..], &often(b"}(h\x01h\x01h\x02Nu")].concat()),
        (
            "blocks",
            [
                &record_words("state", "size")[..],
                &Script::default().text("inactive").raw(b"q\x03").0,
                &often(b"}(h\x01h\x03h\x02Nu"),
            ]
            .concat(),
        ),
        ("segments", [&record_words("blocks", "total_size")[..], &often(b"}(h\x01]u")].concat()),
        ("distinct texts", distinct(|s, i| s.raw(b"U\x04").raw(&i.to_le_bytes()))),
        ("distinct pairs", distinct(|s, i| s.int(i.into()).raw(b"K\x01\x86"))),
        ("distinct floats", distinct(|s, i| s.op(b'G').raw(&f64::from(i).to_be_bytes()))),
        ("distinct keys", distinct(|s, i| s.raw(b"}(U\x04").raw(&i.to_le_bytes()).raw(b"Nu"))),
        ("distinct stacks of text", distinct(|s, i| s.raw(b"](U\x04").raw(&i.to_le_bytes()).op(b'e'))),
    ] {
        let (snapshot, tree) = harmless(name, &[b"\x80\x04", &opcodes[..], b"N."].concat());
        assert!(snapshot.is_some(), "{name}");
        assert_eq!(tree, None, "{name}");
    }
}

#[test]
fn distinct_runs_of_references_cost_no_more_than_their_share() {
    let mut script = Script::default();
    for slot in 0..200u8 {
        script = script.py(&sample::frame("a.py", slot.into(), "f")).raw(&[b'q', slot]);
    }
    for i in 0..50_000u32 {
        let [a, b, c, _] = i.to_le_bytes();
        script = script.raw(b"](").raw(&[b'h', a % 200, b'h', b % 200, b'h', c, b'e']);
    }
    harmless("distinct runs", &script.op(b'N').stop());
}

#[test]
fn odd_things_by_the_thousand_give_few_warnings() {
    let odd_event = |n: usize| {
        let mut event = sample::event("alloc", 1, 2, 3);
        let keys = (0..800).map(|key| (format!("k{n}.{key}").as_str().into(), 1.into()));
        event.pairs().extend(keys);
        event
    };
    let events: Vec<Py> = (0..60).map(odd_event).collect();
    let segments: Vec<Py> = (0..5000u64)
        .map(|i| dict([("blocks", vec![].into()), ("address", i.into()), ("total_size", 1.into())]))
        .collect();
    let bytes = sample::snapshot_of(segments, vec![events.into()]).pickle(4);
    assert_eq!(harmless("unknown keys", &bytes).0, None);
    let warnings = read(&bytes).warnings.to_vec();
    assert_eq!(warnings.len(), 102, "{warnings:?}");
    let all: String = warnings.iter().map(|w| w.message.clone() + "\n").collect();
    assert!(all.contains("more than 50 unknown keys"), "{all}");
    assert!(all.contains("of 5,000 segments in all"), "{all}");
}

#[test]
fn nested_json_is_refused_before_the_stack_ends() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"[{"frames":"#, "}]")] {
        for json in [
            open.repeat(100_000),
            format!("{}1{}", open.repeat(100_000), close.repeat(100_000)),
            format!(r#"{{"segments":[],"x":{}1{}}}"#, open.repeat(100_000), close.repeat(100_000)),
        ] {
            let (snapshot, _) = harmless("nested JSON", json.as_bytes());
            let message = snapshot.unwrap();
            assert!(message.contains("recursion limit exceeded"), "{message}");
            assert!(message.contains("(byte "), "{message}");
        }
    }
    let wide = format!(r#"{{"segments":[],"x":[{}1]}}"#, "[],".repeat(MANY));
    assert_eq!(harmless("wide JSON", wide.as_bytes()).0, None);
    assert_eq!(describe(&read(wide.as_bytes())), describe(&read(br#"{"segments":[]}"#)));
}

#[test]
fn absurd_memo_numbers_cost_nothing() {
    let gap = |slot: u32| Script::default().op(b'N').put(slot).raw(&b"N".repeat(50_000)).stop();
    let (snapshot, tree) = harmless("the last slot", &gap(u32::MAX));
    assert!(snapshot.unwrap().contains("memo number 4294967295 exceeds the size of the file"));
    assert!(tree.unwrap().contains("memo number 4294967295"));
    let (snapshot, _) = harmless("a slot far beyond the file", &gap(5_000_000));
    assert!(snapshot.unwrap().contains("memo number 5000000 exceeds the size of the file"));
    let (_, tree) = harmless("as many slots as bytes", &gap(50_000));
    assert_eq!(tree, None);
}
