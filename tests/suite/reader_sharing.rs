//! The memo: what a pickle refers to again is what stood there, however it was put there.

use crate::support::describe::{describe_event, read, refusal, stack};
use crate::support::pickle_bytes::{Py, Script};
use crate::support::pickle_tree::Tree;
use crate::support::sample;
use oomscope::snapshot::Snapshot;

fn json(opcodes: &[u8]) -> String {
    let pickle = [opcodes, b"."].concat();
    let tree = Tree::read(&pickle).unwrap_or_else(|error| panic!("{error}: {pickle:02x?}"));
    tree.to_json(10_000).unwrap()
}

fn error(opcodes: &[u8]) -> String {
    let pickle = [opcodes, b"."].concat();
    refusal(&pickle);
    Tree::read(&pickle).unwrap_err().to_string()
}

/// Entries whose `frames` are these opcodes.
fn events(frames: &[Vec<u8>]) -> Py {
    let events = frames.iter().map(|frames| sample::event("alloc", 1, 2, 3).with("frames", Py::Raw(frames.clone())));
    sample::snapshot_of(vec![], vec![events.collect::<Vec<_>>().into()])
}

/// The stacks of all entries.
fn stacks(snapshot: &Snapshot) -> Vec<String> {
    snapshot.device(0).entries().map(|entry| stack(snapshot, entry.stack)).collect()
}

fn frame(line: i32) -> Py {
    sample::frame("/a.py", line, "f")
}

#[test]
fn equal_references_after_a_slot_is_written_again_are_other_stacks() {
    let run = b"](h\x01h\x01e";
    let first = Script::default().py(&frame(1)).raw(b"q\x010").raw(run).0;
    let again = run.to_vec();
    let other = Script::default().py(&frame(2)).raw(b"q\x010").raw(run).0;
    let (one, two) = ("[f@/a.py:1 < f@/a.py:1]", "[f@/a.py:2 < f@/a.py:2]");
    // The same again many times, so that every short cut is taken.
    let mut frames = vec![first.clone()];
    frames.extend(vec![again.clone(); 5]);
    frames.push(other.clone());
    frames.extend(vec![again.clone(); 5]);
    frames.push(first);
    frames.push(again);
    let expected = [vec![one; 6], vec![two; 6], vec![one; 2]].concat();
    assert_eq!(stacks(&read(&events(&frames).pickle(4))), expected);
}

#[test]
fn two_stacks_in_turn_stay_two_stacks() {
    let put = |line: i32, slot: u8| Script::default().py(&frame(line)).raw(&[b'q', slot, b'0']).0;
    let [a, b, long] = [&b"](h\x01e"[..], b"](h\x02e", b"](j\x01\0\0\0e"].map(<[u8]>::to_vec);
    let first = [put(1, 1), put(2, 2), a.clone()].concat();
    let frames = [first, b.clone(), a.clone(), b.clone(), b.clone(), a.clone(), long.clone(), a, long, b];
    let lines = [1, 2, 1, 2, 2, 1, 1, 1, 1, 2].map(|line| format!("[f@/a.py:{line}]"));
    assert_eq!(stacks(&read(&events(&frames).pickle(4))), lines);
}

#[test]
fn a_shared_stack_of_more_than_a_thousand_frames_is_whole_everywhere() {
    for count in [999, 1000, 1001, 2000, 2001, 3500] {
        let mut script = Script::default();
        for line in 0..count {
            let slot = u32::try_from(line).unwrap();
            script = script.py(&frame(line)).put(slot).op(b'0');
        }
        // As CPython writes it: into the memo at once, then batches of a thousand.
        let list_slot = u32::try_from(count).unwrap();
        script = script.op(b']').put(list_slot);
        for batch in (0..list_slot).collect::<Vec<_>>().chunks(1000) {
            script = match batch {
                [one] => script.get(*one).op(b'a'),
                _ => batch.iter().fold(script.op(b'('), |s, slot| s.get(*slot)).op(b'e'),
            };
        }
        let frames = [script.0, Script::default().get(list_slot).0];
        let snapshot = read(&events(&[&frames[..], &frames[1..]].concat()).pickle(4));
        // Of more than 2048, the innermost 1536 and the outermost 512 are kept.
        let is_kept = |line: &i32| count <= 2048 || *line < 1536 || *line >= count - 512;
        let left_out = snapshot.stacks.frames_left_out(snapshot.entries.get(0).unwrap().stack);
        assert_eq!(left_out, u64::try_from((count - 2048).max(0)).unwrap());
        let lines: Vec<String> = (0..count).filter(is_kept).map(|line| format!("f@/a.py:{line}")).collect();
        assert_eq!(stacks(&snapshot), vec![format!("[{}]", lines.join(" < ")); 3], "{count}");
        assert_eq!(snapshot.stacks.len(), 2, "the empty stack and this one");
    }
}

#[test]
fn a_stack_in_batches_of_any_size_is_whole() {
    let frames: Vec<u8> =
        (1..=5).flat_map(|n| Script::default().py(&frame(n)).raw(&[b'q', u8::try_from(n).unwrap(), b'0']).0).collect();
    let whole = "[f@/a.py:1 < f@/a.py:2 < f@/a.py:3 < f@/a.py:4 < f@/a.py:5]";
    let first_batch = b"](h\x01h\x02e".to_vec();
    for stack in [
        &b"]q\x09(h\x01h\x02e(h\x03h\x04e(h\x05e"[..],
        b"]q\x09(h\x01h\x02e(h\x03h\x04h\x05e",
        b"]q\x09(h\x01e(h\x02e(h\x03e(h\x04e(h\x05e",
        b"]q\x09h\x01ah\x02ah\x03ah\x04ah\x05a",
        b"(lq\x09h\x01ah\x02ah\x03ah\x04ah\x05a",
        b"(h\x01h\x02lq\x09h\x03ah\x04ah\x05a",
    ] {
        let again = b"h\x09".to_vec();
        let first = [&frames[..], &first_batch].concat();
        let all = [first, stack.to_vec(), again.clone(), first_batch.clone(), stack.to_vec(), again];
        let short = "[f@/a.py:1 < f@/a.py:2]";
        let expected = [short, whole, whole, short, whole, whole];
        assert_eq!(stacks(&read(&events(&all).pickle(4))), expected, "{stack:02x?}");
    }
}

#[test]
fn stacks_with_equal_first_batches_stay_apart() {
    // A list of 1000 references, and one of the same 1000 and one more.
    let mut script = Script::default();
    for slot in 0..=1000 {
        script = script.py(&frame(slot)).put(u32::try_from(slot).unwrap()).op(b'0');
    }
    let thousand = (0..1000).fold(Script::default().raw(b"]("), Script::get).op(b'e').0;
    let more = Script::default().raw(&thousand).op(b'(').get(1000).op(b'e').0;
    let short = thousand.clone();
    let first = [script.0, thousand].concat();
    let snapshot = read(&events(&[first, short.clone(), more.clone(), short, more]).pickle(4));
    let depths: Vec<usize> = stacks(&snapshot).iter().map(|s| s.matches("f@").count()).collect();
    assert_eq!(depths, [1000, 1000, 1001, 1000, 1001]);
}

#[test]
fn the_memo_is_numbered_as_cpython_numbers_it() {
    for (opcodes, expected) in [
        // MEMOIZE takes the number of entries, whatever their numbers are.
        (&b"](K\x01r\x09\0\0\0K\x02\x94h\x01h\x09e"[..], "[1,2,2,1]"),
        (b"](K\x01q\x01K\x02\x94h\x01e", "[1,2,2]"),
        (b"](K\x01q\x02K\x02q\0K\x03\x94h\0h\x02e", "[1,2,3,2,3]"),
        (b"](K\x01\x94K\x02\x94K\x03\x94h\x02h\0h\x01e", "[1,2,3,3,1,2]"),
        // A slot that is written again holds the new value.
        (b"](K\x01q\0h\0K\x02q\0h\0e", "[1,1,2,2]"),
        // In text, and beyond a byte.
        (b"(lp0\nI5\naI6\np12\nag12\na", "[5,6,6]"),
        // The same list in two slots, before and after it is filled.
        (b"](]q\0q\x01(K\x07eh\0h\x01e", "[[7],[7],[7]]"),
        (b"](](K\x07eq\0q\x01h\0h\x01e", "[[7],[7],[7]]"),
        // Shared while it is empty and for good.
        (b"](]\x94h\0h\0}\x94h\x01)\x94h\x02e", r#"[[],[],[],{"dict":[]},{"dict":[]},{"tuple":[]},{"tuple":[]}]"#),
        // DUP refers to the same.
        (b"(](K\x01e2t", r#"{"tuple":[[1],[1]]}"#),
        (b"(]\x942t", r#"{"tuple":[[],[]]}"#),
        // POP and POP_MARK leave the memo as it is.
        (b"K\x05q\0(K\x06K\x0710h\0", "5"),
        (b"K\x05K\x06(0\x86", r#"{"tuple":[5,6]}"#),
    ] {
        assert_eq!(json(opcodes), expected, "{opcodes:02x?}");
    }
}

#[test]
fn values_that_contain_themselves_or_grow_after_use_are_refused() {
    let contains = "a container contains itself or is changed after use";
    for opcodes in [
        &b"]q\0h\0a"[..],
        b"]q\0(h\0e",
        b"]q\0(K\x01h\0e",
        b"]q\0(K\x01e(h\0e",
        b"]q\0(K\x01eh\0a",
        b"]q\0(K\x01e(](h\0ee",
        b"}q\0(K\x01h\0u",
        b"}q\0K\x01K\x02sK\x03h\0s",
        b"]q\0h\0\x85a",
        b"]q\0]h\0aa",
        // A tuple that a list in it refers to, as picklers write it by POP and GET.
        b"]q\0(h\0K\x01e0h\0",
        // Filled by way of a second reference.
        b"]2(K\x01e",
        b"]q\x002(K\x01e0",
        b"]q\0\x85q\x010h\0(K\x01e0h\x01",
        b"]q\0(K\x01e\x85q\x010h\0(K\x02e0h\x01",
        b"}q\0\x85q\x010h\0K\x01K\x02s0h\x01",
    ] {
        let message = error(opcodes);
        assert!(message.contains(contains), "{opcodes:02x?}: {message}");
    }
    for opcodes in [&b"]q\0K\x05q\0(K\x01e0h\0"[..], b"](]q\0q\x01(K\x07eK\x05q\0h\x01e"] {
        let message = error(opcodes);
        assert!(message.contains("is written again before"), "{opcodes:02x?}: {message}");
    }
    let stack = Script::default().py(&frame(1)).raw(b"q\x010](h\x01eq\x02h\x02(h\x01e").0;
    let message = refusal(&events(&[stack]).pickle(4));
    assert!(message.contains(contains), "{message}");
    let entry = Script::default().py(&sample::event("alloc", 1, 2, 3)).raw(b"K\x01K\x02s").0;
    let entry = Py::Raw(entry);
    let message = refusal(&sample::snapshot_of(vec![], vec![vec![entry].into()]).pickle(4));
    assert!(message.contains("a record of a snapshot is changed after it was complete"), "{message}");
}

#[test]
fn a_record_in_parts_is_one_record() {
    let part = |key: &str, value: u8| Script::default().text(key).raw(&[b'K', value]).0;
    let parts = [part("addr", 7), part("size", 8), part("stream", 9)];
    let action = Script::default().text("action").text("alloc").0;
    let batches: Vec<u8> = [&action[..], &parts[0], b"u(", &parts[1], &parts[2]].concat();
    let pairs = [&action[..], b"s", &parts[0], b"s", &parts[1], b"s", &parts[2]].concat();
    for opcodes in [[b"}(", &batches[..], b"u"].concat(), [b"}", &pairs[..], b"s"].concat()] {
        let sample = sample::snapshot_of(vec![], vec![vec![Py::Raw(opcodes)].into()]);
        let snapshot = read(&sample.pickle(4));
        let text = describe_event(&snapshot, snapshot.entries.get(0).unwrap());
        assert!(text.starts_with("Alloc 0x7+8 stream 9 "), "{text}");
    }
    // Whatever key comes first.
    let total = part("total_size", 5);
    let blocks = Script::default().text("blocks").op(b']').0;
    let segment = [b"}", &blocks[..], b"s", &total, b"s"].concat();
    let snapshot = read(&sample::snapshot_of(vec![Py::Raw(segment)], vec![]).pickle(4));
    assert_eq!(snapshot.segments.len(), 1);
    assert_eq!(snapshot.segments[0].total_size, 5);
}

#[test]
fn a_record_that_is_used_twice_is_one_record() {
    // An entry in the memo that nothing refers to again, and a frame that everything refers to.
    let entry = Script::default().py(&sample::event("alloc", 1, 2, 3)).raw(b"q\x07").0;
    let sample = sample::snapshot_of(vec![], vec![vec![Py::Raw(entry)].into()]);
    let snapshot = read(&sample.pickle(4));
    assert_eq!(snapshot.entries.len(), 1);
    let text = describe_event(&snapshot, snapshot.entries.get(0).unwrap());
    assert!(text.starts_with("Alloc 0x1+2 "), "{text}");
}
